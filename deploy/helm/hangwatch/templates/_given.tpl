{{- /* What a pod is given, also by inject.yaml: init containers and volumes. Arguments: `root`, the context; `agent`: also an agent. */}}
{{- define "hangwatch.initContainers" -}}
{{- $ := .root -}}
{{- $mount := dict "name" "hangwatch" "mountPath" "/hangwatch" -}}
# Copies the probe for the container of the job, which does not need hangwatch installed.
- name: hangwatch-probe
  {{- include "hangwatch.image" $ | nindent 2 }}
  command: ["copy-probe", "/hangwatch"]
  securityContext:
    runAsUser: 0
    runAsNonRoot: false
    allowPrivilegeEscalation: false
    capabilities:
      drop: ["ALL"]
  volumeMounts:
    - {{ toJson $mount }}
{{- if .agent }}
# A sidecar: it starts before the job and does not keep the pod from completing. No probes: the job is ready without it,
# and operators count its restarts as the job's.
- name: hangwatch
  {{- include "hangwatch.image" $ | nindent 2 }}
  restartPolicy: Always
  args: {{ concat (list "agent" "--listen" "0.0.0.0:9753") $.Values.sidecar.args | toJson }}
  env:
    - name: HANGWATCH_NODE
      valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
    - name: HANGWATCH_STATE_DIR
      value: /hangwatch/state
    {{- if $.Values.sidecar.claim }}
    - name: POD_NAME
      valueFrom: { fieldRef: { fieldPath: metadata.name } }
    {{- end }}
  envFrom:
    # HANGWATCH_EXCHANGE in it joins the pods: one verdict for the job.
    - secretRef: { name: {{ $.Values.secret.name }}, optional: true }
  ports:
    - name: hangwatch
      containerPort: 9753
  securityContext:
    runAsUser: 0  # the user of the job, or root
    runAsNonRoot: false
    allowPrivilegeEscalation: false
    capabilities:
      drop: ["ALL"]
      add: {{ toJson $.Values.sidecar.capabilities }}
    seccompProfile:
      type: RuntimeDefault
  resources: {{- toYaml $.Values.sidecar.resources | nindent 4 }}
  volumeMounts:
    - {{ toJson $mount }}
    {{- if $.Values.sidecar.claim }}
    - { name: hangwatch-bundles, mountPath: /hangwatch/state, subPathExpr: $(POD_NAME) }
    {{- end }}
{{- end }}
{{- end }}

{{- define "hangwatch.volumes" -}}
{{- $ := .root -}}
# In memory: heartbeats are small, and a disk that hangs must not hide a hang.
- name: hangwatch
  emptyDir: { medium: Memory, sizeLimit: 1Gi }
# The labels that name the job, the same in all its pods.
- name: hangwatch-podinfo
  downwardAPI:
    items:
      - { path: labels, fieldRef: { fieldPath: metadata.labels } }
{{- if and .agent $.Values.sidecar.claim }}
- name: hangwatch-bundles
  persistentVolumeClaim: { claimName: {{ $.Values.sidecar.claim }} }
{{- end }}
{{- end }}

{{- /* The path of Python's modules with the probe before those of the image. */}}
{{- define "hangwatch.pythonPath" -}}
{{- list "/hangwatch/probe/site" .Values.sidecar.pythonPath | compact | join ":" }}
{{- end }}

{{- /* A value in the words of CEL, whose lists and maps hold values of one type, so that objects have types: their places. */}}
{{- define "hangwatch.cel" -}}
{{- $type := index . 0 }}
{{- $value := index . 1 }}
{{- $parts := list }}
{{- if kindIs "map" $value }}
{{- range $key, $one := $value }}
{{- $said := has $key (list "limits" "requests") | ternary (toJson $one) (include "hangwatch.cel" (list (printf "%s.%s" $type $key) $one)) }}
{{- $parts = append $parts (printf "%s: %s" $key $said) }}
{{- end }}
{{- printf "%s{%s}" $type (join ", " $parts) }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
{{- $parts = append $parts (include "hangwatch.cel" (list $type .)) }}
{{- end }}
{{- printf "[%s]" (join ", " $parts) }}
{{- else }}
{{- toJson $value }}
{{- end }}
{{- end }}
