package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"synctl/internal/cli"
)

// version is what the Go linker knows of this binary.
type version struct {
	Version  string `json:"version"`            // of the module; "devel" where the build was not told
	Revision string `json:"revision,omitempty"` // commit
	Time     string `json:"time,omitempty"`     // of the commit
	Modified bool   `json:"modified"`           // built from files that differ from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() version {
	v := version{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v version) String() string {
	parts := []string{"synctl " + v.Version}
	if v.Revision != "" {
		commit := "commit " + v.Revision
		if v.Modified {
			commit += " (modified)"
		}
		parts = append(parts, commit)
	}
	return strings.Join(append(parts, v.Go, v.Platform), ", ")
}

func newVersion(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Long:  "Prints the module's version, the commit it was built from, and the Go version, as the linker recorded them.",
		Example: `  synctl version
  synctl version --output json`,
		Args: cobra.NoArgs,
	}
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(_ context.Context, r *cli.Run) error {
		v := buildVersion()
		return r.Result(output, v, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, v)
			return err
		})
	})
	return cmd
}
