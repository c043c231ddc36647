// The controllers of DaemonSets, accounts and their tokens, started as kube-controller-manager starts them
// (cmd/kube-controller-manager/app, 1.20) and without the rest of it, which takes as long to build as the API server.
package main

import (
	"os"
	"strings"
	"time"

	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/keyutil"

	"k8s.io/kubernetes/pkg/controller/daemon"
	accounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	options := map[string]string{}
	for _, word := range os.Args[1:] {
		parts := strings.SplitN(strings.TrimPrefix(word, "--"), "=", 2)
		options[parts[0]] = parts[1]
	}
	config, err := clientcmd.BuildConfigFromFlags("", options["kubeconfig"])
	must(err)
	client := clientset.NewForConfigOrDie(config)
	shared := informers.NewSharedInformerFactory(client, time.Hour)
	stop := make(chan struct{})
	key, err := keyutil.PrivateKeyFromFile(options["service-account-private-key-file"])
	must(err)
	root, err := os.ReadFile(options["root-ca-file"])
	must(err)
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	must(err)
	tokens, err := accounts.NewTokensController(shared.Core().V1().ServiceAccounts(), shared.Core().V1().Secrets(), client,
		accounts.TokensControllerOptions{TokenGenerator: generator, RootCA: root})
	must(err)
	defaults, err := accounts.NewServiceAccountsController(shared.Core().V1().ServiceAccounts(), shared.Core().V1().Namespaces(), client,
		accounts.DefaultServiceAccountsControllerOptions())
	must(err)
	daemons, err := daemon.NewDaemonSetsController(shared.Apps().V1().DaemonSets(), shared.Apps().V1().ControllerRevisions(),
		shared.Core().V1().Pods(), shared.Core().V1().Nodes(), client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	must(err)
	go tokens.Run(1, stop)
	go defaults.Run(1, stop)
	go daemons.Run(2, stop)
	shared.Start(stop)
	<-stop
}
