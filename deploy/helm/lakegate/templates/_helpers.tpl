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
