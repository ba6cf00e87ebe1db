package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"synctl/internal/fault"
)

// layered runs 'synctl cdc tail' with a file, an environment and a command line, and gives the flags as it got them.
func layered(t *testing.T, file string, env map[string]string, args ...string) (*cobra.Command, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"cdc", "tail", "--config", path}, args...)
	app := New(IO{Getenv: func(k string) string { return env[k] }}, args)
	root := &cobra.Command{Use: "synctl"}
	app.Attach(root)
	command := func(use string, flags ...string) *cobra.Command {
		c := &cobra.Command{Use: use, RunE: func(*cobra.Command, []string) error { return nil }}
		for _, f := range flags {
			c.Flags().String(f, "default", "")
		}
		return c
	}
	tail := command("tail", "slot", "from", "from-time", "from-beginning")
	tail.Flags().StringArray("table", nil, "")
	tail.MarkFlagsMutuallyExclusive("from-time", "from-beginning")
	if err := tail.MarkFlagRequired("slot"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(Group("cdc", "", "", tail, command("publish", "to")))
	root.SetArgs(args)
	_, err := root.ExecuteC()
	return tail, err
}

func TestLayers(t *testing.T) {
	const file = `
from: top
cdc:
  tail:
    slot: deep
    table: [public.a, "public.b,c"]
  slot: middle
  publish: {to: elsewhere}
`
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		want map[string]string
	}{
		{"file: the deepest place wins, whatever the order", nil, nil, map[string]string{"slot": "deep", "from": "top", "table": `[public.a,"public.b,c"]`}},
		{"environment over file", map[string]string{"SYNCTL_SLOT": "env", "SYNCTL_TABLE": "x.a,x.b"}, nil, map[string]string{"slot": "env", "table": "[x.a,x.b]"}},
		{"flag over both", map[string]string{"SYNCTL_SLOT": "env", "SYNCTL_TABLE": "x.a"}, []string{"--slot", "flag", "--table", "y.a"}, map[string]string{"slot": "flag", "table": "[y.a]"}},
		{"an empty variable is none", map[string]string{"SYNCTL_SLOT": ""}, nil, map[string]string{"slot": "deep"}},
		{"a flag beats what it excludes in lower layers", map[string]string{"SYNCTL_FROM_BEGINNING": "true"}, []string{"--from-time", "T"}, map[string]string{"from-time": "T", "from-beginning": "default"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tail, err := layered(t, file, c.env, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if got := tail.Flags().Lookup(name).Value.String(); got != want {
					t.Errorf("--%s is %q, want %q", name, got, want)
				}
			}
		})
	}
	t.Run("list", func(t *testing.T) {
		tail, err := layered(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := tail.Flags().GetStringArray("table"); !slices.Equal(got, []string{"public.a", "public.b,c"}) {
			t.Errorf("--table is %q", got)
		}
	})
}

func TestConfigurationErrors(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"unknown flag", "cdc:\n  tail:\n    solt: x\n", `c.yaml:3: unknown key "solt" for "synctl cdc tail"`},
		{"unknown flag of another command", "cdc:\n  publish:\n    slot: x\n", `c.yaml:3: unknown key "slot" for "synctl cdc publish"`},
		{"help is no setting", "help: true\n", `c.yaml:1: unknown key "help"`},
		{"config is no setting", "config: x\n", `c.yaml:1: unknown key "config"`},
		{"a list of commands", "cdc: [a]\n", `c.yaml:1: want a mapping of flags and commands for "synctl cdc"`},
		{"a mapping as a value", "slot: {a: b}\n", "c.yaml:1: want a value"},
		{"an empty list", "slot: []\n", "c.yaml:1: want a value"},
		{"a value that does not fit", "log-level: loud\n", "c.yaml:1: --log-level: want one of"},
		{"a required flag that nobody gives", "", `required flag(s) "slot" not set`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := layered(t, c.file, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, want %q in it", err, c.want)
			}
			if c.file != "" && (fault.ClassOf(err) != fault.Usage || fault.HintOf(err) == "") {
				t.Errorf("class %d, hint %q", fault.ClassOf(err), fault.HintOf(err))
			}
		})
	}
}
