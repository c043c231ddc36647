{{- define "hangwatch.name" -}}
{{- contains "hangwatch" .Release.Name | ternary .Release.Name (printf "%s-hangwatch" .Release.Name) | trunc 53 | trimSuffix "-" }}
{{- end }}

{{/* What selects the pods of one component; the argument is a list of the context and the component's name. */}}
{{- define "hangwatch.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: hangwatch
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "hangwatch.labels" -}}
{{- $ := index . 0 -}}
{{ include "hangwatch.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ $.Chart.Name }}-{{ $.Chart.Version }}
{{- end }}

{{/* Every pod with an agent has it, whoever made the pod: Prometheus and the policy of Valkey look for it. */}}
{{- define "hangwatch.mark" -}}
hangwatch: agent
{{- end }}

{{- define "hangwatch.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* Settings as TOML. Helm reads every number as a fraction, and hangwatch refuses 10.0 for a count. */}}
{{- define "hangwatch.settings" -}}
{{- regexReplaceAll `(?m)( = -?[0-9]+)\.0$` (merge (dict "listen" "0.0.0.0:9753") .Values.settings | toToml) "${1}" }}
{{- end }}

{{/* "true" if the agents of the nodes call Kubernetes. */}}
{{- define "hangwatch.calls" -}}
{{- if or .Values.cordon.enabled .Values.events.enabled }}true{{ end }}
{{- end }}

{{/* "true" if the settings end jobs. */}}
{{- define "hangwatch.kills" -}}
{{- $hang := dig "on_hang" "action" "" .Values.settings -}}
{{- $silent := dig "on_silent_failure" "action" "" .Values.settings -}}
{{- if or (regexMatch "^(stop|restart|raise)" $hang) (regexMatch "^stop" $silent) }}true{{ end }}
{{- end }}
