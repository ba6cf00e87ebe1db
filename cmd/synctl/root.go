package main

import (
	"github.com/spf13/cobra"

	"synctl/internal/cli"
)

// run executes one command line and returns its exit code.
func run(io cli.IO, args []string) int {
	root := newRoot(io)
	root.SetArgs(args)
	root.SetIn(io.In)
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	if err := root.Execute(); err != nil {
		return 1
	}
	return 0
}

func newRoot(io cli.IO) *cobra.Command {
	return &cobra.Command{Use: "synctl", Short: "Keep data in step between systems", SilenceUsage: true, SilenceErrors: true}
}
