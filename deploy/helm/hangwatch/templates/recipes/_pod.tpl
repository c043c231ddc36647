{{- /*
The pod of a job, with the probe and an agent beside the container. Arguments: `root`, the context; `container`, its name;
`command`, which job.command replaces; none:
that of the operator; `restart`: the pod's restartPolicy; `more`: more of the container.
*/}}
{{- define "hangwatch.pod" -}}
{{- $ := .root -}}
{{- $mount := dict "name" "hangwatch" "mountPath" "/hangwatch" -}}
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
    # Copies the probe for the container of the job, which does not need hangwatch installed.
    - name: hangwatch-probe
      {{- include "hangwatch.image" $ | nindent 6 }}
      command: ["copy-probe", "/hangwatch"]
      securityContext:
        runAsUser: 0
        allowPrivilegeEscalation: false
        capabilities:
          drop: ["ALL"]
      volumeMounts:
        - {{ toJson $mount }}
    {{- if $.Values.sidecar.agent }}
    # A sidecar: it starts before the job and does not keep the pod from completing. No probes: the job is ready without it,
    # and operators count its restarts as the job's.
    - name: hangwatch
      {{- include "hangwatch.image" $ | nindent 6 }}
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
        allowPrivilegeEscalation: false
        capabilities:
          drop: ["ALL"]
          add: {{ toJson $.Values.sidecar.capabilities }}
        seccompProfile:
          type: RuntimeDefault
      resources: {{- toYaml $.Values.sidecar.resources | nindent 8 }}
      volumeMounts:
        - {{ toJson $mount }}
        {{- if $.Values.sidecar.claim }}
        - { name: bundles, mountPath: /hangwatch/state, subPathExpr: $(POD_NAME) }
        {{- end }}
    {{- end }}
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
          value: {{ list "/hangwatch/probe/site" $.Values.sidecar.pythonPath | compact | join ":" }}
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
        - {{ toJson $mount }}
        - { name: podinfo, mountPath: /etc/podinfo, readOnly: true }
  volumes:
    # In memory: heartbeats are small, and a disk that hangs must not hide a hang.
    - name: hangwatch
      emptyDir: { medium: Memory, sizeLimit: 1Gi }
    # The labels that name the job, the same in all its pods.
    - name: podinfo
      downwardAPI:
        items:
          - { path: labels, fieldRef: { fieldPath: metadata.labels } }
    {{- if and $.Values.sidecar.agent $.Values.sidecar.claim }}
    - name: bundles
      persistentVolumeClaim: { claimName: {{ $.Values.sidecar.claim }} }
    {{- end }}
{{- end }}
