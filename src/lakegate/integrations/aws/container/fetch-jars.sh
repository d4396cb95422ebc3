#!/bin/sh
# fetch-jars.sh FOLDER JARS: put the jars that FOLDER names into JARS, and fail unless each is the one that was tested.
#
# FOLDER/jars.xml asks Apache Ivy for them, FOLDER/jars.sha256 holds their sums. Ivy comes with Spark, in JARS, and knows
# where Maven's artefacts live. A jar that is in JARS already is as good as a fetched one if its sum is right.
set -eu
folder=$(cd "$1" && pwd)
cd "$2"
if ! sha256sum --check --status "$folder/jars.sha256" 2>/dev/null; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" "-Divy.default.ivy.user.dir=$work" \
        -Dsun.net.client.defaultConnectTimeout=15000 -Dsun.net.client.defaultReadTimeout=60000 -jar ivy-*.jar \
        -ivy "$folder/jars.xml" -cache "$work/cache" -retrieve "$work/[artifact]-[revision].[ext]"
    mv "$work"/*.jar .
    chmod 0644 ./*.jar
fi
sha256sum --check "$folder/jars.sha256"
