{{/* The name of all objects: the release's, with the chart's unless that is in it. */}}
{{- define "evictscope.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 29) .Chart.Name -}}
{{- end -}}
{{- end -}}

{{- define "evictscope.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "evictscope.scheme" -}}
{{ .Values.webConfig.tls | ternary "https" "http" }}
{{- end -}}

{{/* The name of the configuration changes with its content, so that a change restarts the agents. */}}
{{- define "evictscope.config" -}}
{{ include "evictscope.name" . }}-{{ .Values.config | sha256sum | trunc 10 }}
{{- end -}}
