# The function, as it is in the zip, on AWS's own image of its Python.
# BASE is resolved to a digest before it gets here (build.sh); its tag stands here for those who build by hand.
ARG BASE=public.ecr.aws/lambda/python:3.12
FROM ${BASE}
COPY function/ ${LAMBDA_TASK_ROOT}/
CMD ["lakegate.integrations.aws_lambda.handler"]
