{{- /*
The pod of a job, with the probe and an agent beside the container. Arguments: `root`, the context; `container`, its name;
`command`, which job.command replaces; none:
that of the operator; `restart`: the pod's restartPolicy; `more`: more of the container.
*/}}
{{- define "hangwatch.pod" -}}
{{- $ := .root -}}
{{- $given := dict "root" $ "agent" $.Values.sidecar.agent -}}
{{- if $.Values.sidecar.agent -}}
metadata:
  labels: {{- include "hangwatch.mark" . | nindent 4 }}
{{ end -}}
spec:
  {{- with .restart }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with $.Values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $.Values.sidecar.agent }}
  # The agent sees the processes of the other containers.
  shareProcessNamespace: true
  {{- end }}
  initContainers:
    {{- include "hangwatch.initContainers" $given | nindent 4 }}
  containers:
    - name: {{ .container }}
      image: {{ $.Values.job.image }}
      {{- with .command }}
      command: {{ $.Values.job.command | default . | toJson }}
      {{- end }}
      {{- with .more }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      env:
        - name: PYTHONPATH
          value: {{ include "hangwatch.pythonPath" $ }}
        - name: HANGWATCH_RUN_DIR
          value: /hangwatch/run
        # Keeps the environment readable for the agent if a process sets its title, as engines do.
        - name: SPT_NOENV
          value: "1"
        # Alerts and metrics name the pod.
        - name: POD_NAME
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        - name: POD_NAMESPACE
          valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
      resources:
        limits: { nvidia.com/gpu: {{ $.Values.job.gpus }} }
      volumeMounts:
        - { name: hangwatch, mountPath: /hangwatch }
        - { name: hangwatch-podinfo, mountPath: /etc/podinfo, readOnly: true }
  volumes:
    {{- include "hangwatch.volumes" $given | nindent 4 }}
{{- end }}
