# Spark with exactly the jars that lakegate is tested with; nothing is downloaded when it starts.
# BASE is resolved to a digest before it gets here (build.sh); its tag stands here for those who build by hand.
ARG BASE=docker.io/apache/spark:4.1.4
FROM ${BASE}
USER root
COPY fetch-jars.sh jars.xml jars.sha256 /opt/lakegate/
RUN sh /opt/lakegate/fetch-jars.sh /opt/lakegate /opt/spark/jars
USER spark
