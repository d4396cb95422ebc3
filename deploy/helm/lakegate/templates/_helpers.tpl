{{- define "lakegate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lakegate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lakegate.labels" -}}
{{ include "lakegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "lakegate.dashboard.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-dashboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lakegate.dashboard.labels" -}}
{{ include "lakegate.dashboard.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "lakegate.serve.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-serve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lakegate.serve.labels" -}}
{{ include "lakegate.serve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "lakegate.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "lakegate.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "lakegate.image" -}}
{{ .image.repository }}:{{ .image.tag | default .default }}
{{- end -}}

{{- define "lakegate.env" -}}
- name: HOME
  value: /tmp
{{- with .Values.awsCredentials }}
- name: AWS_SHARED_CREDENTIALS_FILE
  value: /run/secrets/lakegate/{{ . }}
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "lakegate.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "lakegate.spark.conf" -}}
{{- $conf := dict
  "spark.master" "local[*]"
  "spark.driver.memory" .Values.spark.memory
  "spark.local.dir" "/tmp"
  "spark.driver.host" "127.0.0.1"
  "spark.driver.bindAddress" "127.0.0.1"
  "spark.connect.grpc.binding.address" "127.0.0.1"
  "spark.connect.grpc.binding.port" "15002"
  "spark.connect.execute.manager.detachedTimeout" "30s"
  "spark.sql.extensions" "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
  "spark.sql.catalogImplementation" "in-memory"
  "spark.sql.session.timeZone" "UTC"
  "spark.ui.enabled" "false"
  "spark.hadoop.fs.s3.impl" "org.apache.hadoop.fs.s3a.S3AFileSystem"
  "spark.hadoop.fs.s3a.aws.credentials.provider" "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
-}}
{{- range $name, $value := merge (dict) .Values.spark.conf $conf }}
{{ $name }} {{ $value }}
{{- end }}
{{- end -}}

{{- define "lakegate.spark.container" -}}
# restartPolicy makes it a sidecar, which starts before lakegate and ends after it.
- name: spark
  image: {{ include "lakegate.image" (dict "image" .Values.spark.image "default" .Chart.AppVersion) }}
  imagePullPolicy: {{ .Values.spark.image.pullPolicy }}
  restartPolicy: Always
  workingDir: /tmp
  command:
    - /opt/spark/bin/spark-submit
    - --properties-file
    - /etc/lakegate/spark.conf
    - --class
    - org.apache.spark.sql.connect.service.SparkConnectServer
    - spark-internal
  env:
    {{- include "lakegate.env" . | nindent 4 }}
    # A variable and not one of Spark's settings, because every session can read those.
    - name: SPARK_CONNECT_AUTHENTICATE_TOKEN
      valueFrom:
        secretKeyRef:
          name: {{ .Values.secretName }}
          key: {{ .Values.spark.tokenKey }}
  startupProbe:
    exec:
      command: [bash, -c, "exec 3<>/dev/tcp/127.0.0.1/15002"]
    periodSeconds: 2
    failureThreshold: 90
  # Only checks that it listens: a probe can't know how long a write may take.
  livenessProbe:
    exec:
      command: [bash, -c, "exec 3<>/dev/tcp/127.0.0.1/15002"]
    periodSeconds: 30
    timeoutSeconds: 10
    failureThreshold: 4
  resources:
    {{- toYaml .Values.spark.resources | nindent 4 }}
  securityContext:
    runAsUser: 185  # the image's own, without which Java knows no name for it
    {{- include "lakegate.securityContext" . | nindent 4 }}
  volumeMounts:
    - {name: settings, mountPath: /etc/lakegate, readOnly: true}
    - {name: secrets, mountPath: /run/secrets/lakegate, readOnly: true}
    - {name: scratch, mountPath: /tmp}
{{- end -}}

{{- define "lakegate.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# Kubernetes' variables for services, such as LAKEGATE_SERVE_PORT for lakegate-serve, aren't settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lakegate.volumes" -}}
- name: home
  emptyDir: {sizeLimit: 4Gi}
- name: settings
  configMap:
    name: {{ include "lakegate.name" .root }}
- name: secrets
  secret:
    secretName: {{ .root.Values.secretName }}
    defaultMode: 288  # 0440
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- if .spark }}
- name: scratch
  emptyDir:
    sizeLimit: {{ .root.Values.spark.scratch }}
{{- end }}
{{- end -}}

{{- define "lakegate.volumeMounts" -}}
- {name: home, mountPath: /lake}
- {name: settings, mountPath: /lake/lakegate.toml, subPath: lakegate.toml, readOnly: true}
- {name: secrets, mountPath: /run/secrets/lakegate, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}
