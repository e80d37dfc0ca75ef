// Command argo-cd runs parts of Argo CD for tests: the application controller, the repo server, and
// a cache for both, which takes the place of Redis.
package main

import (
	"log"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	repository "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "argo-cd"}
	root.AddCommand(controller.NewCommand(), repository.NewCommand(), newCacheCommand())
	if err := root.Execute(); err != nil {
		log.Fatal(err)
	}
}

func newCacheCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "cache ADDRESS",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := miniredis.NewMiniRedis().StartAddr(arguments[0]); err != nil {
				return err
			}
			select {}
		},
	}
}
