#!/bin/sh
# build.sh: build the image of this folder's Dockerfile and push it. On a laptop and on CodeBuild alike.
#
# ENGINE    docker, finch or podman
# PLATFORM  linux/amd64 or linux/arm64
# BASE      image that it is built on; a tag is resolved to the digest that it has now
# IMAGE     repository and tag to push to
#
# What BASE was resolved to is written to the file `base`.
set -eu
# With attestations beside it, an image is an index, which Lambda refuses; the variable is Buildx's own.
export BUILDX_NO_DEFAULT_ATTESTATIONS=1
"$ENGINE" pull --platform "$PLATFORM" "$BASE"
case $BASE in
    *@sha256:*) resolved=$BASE ;;
    *) resolved=$("$ENGINE" image inspect --format '{{index .RepoDigests 0}}' "$BASE") ;;
esac
case $resolved in
    *@sha256:*) ;;
    *) echo "$ENGINE does not say which digest $BASE has: $resolved" >&2 && exit 1 ;;
esac
"$ENGINE" build --platform "$PLATFORM" --build-arg "BASE=$resolved" \
    --label "org.opencontainers.image.base.name=$BASE" \
    --label "org.opencontainers.image.base.digest=${resolved##*@}" \
    --tag "$IMAGE" .
"$ENGINE" push "$IMAGE"
printf '%s' "$resolved" >base
