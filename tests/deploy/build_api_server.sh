#!/bin/bash
# Builds the API server, its controllers, the scheduler and kubemark from Debian's source package `kubernetes` (bookworm: 1.20.2) into
# FOLDER/bin, for on_api_server.py. Needs Debian's golang-go. Usage: build_api_server.sh FOLDER
set -euo pipefail
folder=$(realpath -m "${1:?usage: build_api_server.sh FOLDER}")
mkdir -p "$folder"/{bin,lists/partial,sources,tree/go/src/k8s.io}
cd "$folder"

# The system's sources, asked for source packages; its own list is left alone.
sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >sources/debian.sources
options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/sources" -o "Dir::State::lists=$folder/lists"
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
apt-get "${options[@]}" update
apt-get "${options[@]}" source --download-only kubernetes
tar -xzf kubernetes_*.orig.tar.gz -C tree --strip-components=1

ln -sfn ../../.. tree/go/src/k8s.io/kubernetes
cd tree/go/src/k8s.io/kubernetes
export GOPATH=$folder/tree/go GO111MODULE=off CGO_ENABLED=0 GOCACHE=$folder/cache
build() { nice -n 10 go build -p 2 -o "$folder/bin/" "$@"; }

# The one generated file that is not in the package: what the server knows of the fields of its kinds.
build ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
mapfile -t staged < <(find staging/src/k8s.io -mindepth 1 -maxdepth 1 -type d -not -name code-generator -not -name 'sample-*')
kinds=$(grep -rl --include='*.go' --exclude='*_test.go' '+k8s:openapi-gen=' pkg cmd "${staged[@]}" | xargs -n1 dirname |
  sed 's#^staging/src/#vendor/#; s#^#k8s.io/kubernetes/#' | sort -u | paste -sd,)
"$folder/bin/openapi-gen" --logtostderr -i "$kinds" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
  -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$folder/violations"

# Without the clients of cloud providers, half of its packages. The server answers /version with that of client-go, which is not in
# the package either.
version=k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version.gitVersion
build -tags providerless -ldflags "-s -w -X $version=v1.20.2" ./cmd/kube-apiserver \
  ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/kubemark
