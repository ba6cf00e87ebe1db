package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"synctl/internal/fault"
)

// EnvName is the environment variable that stands in for a flag: --queue-bytes is SYNCTL_QUEUE_BYTES.
func EnvName(flag string) string {
	return "SYNCTL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applyLayers gives every flag of cmd that is not on the command line its value from the environment, else from the
// configuration file.
func (a *App) applyLayers(cmd *cobra.Command) error {
	if err := a.applyEnv(cmd.Flags()); err != nil {
		return err
	}
	return a.applyConfig(cmd)
}

func (a *App) applyEnv(flags *pflag.FlagSet) error {
	l := newLayer(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if v := a.Getenv(EnvName(f.Name)); v != "" && configurable(f) {
			var values []string
			if _, many := f.Value.(pflag.SliceValue); many {
				values = strings.Split(v, ",")
			} else {
				values = []string{v}
			}
			l.set(f, values, "environment variable "+EnvName(f.Name))
		}
	})
	return l.err
}

// configurable tells the flags that the layers may set: --help is not one of them.
func configurable(f *pflag.Flag) bool { return f.Name != "help" && f.Name != "version" }

// layer sets flags that no layer above has set.
type layer struct {
	flags *pflag.FlagSet
	taken map[string]bool // flags, and groups of flags that exclude each other, that a layer above has decided
	err   error           // the first
}

// exclusive is where cobra's MarkFlagsMutuallyExclusive leaves its groups.
const exclusive = "cobra_annotation_mutually_exclusive"

func newLayer(flags *pflag.FlagSet) *layer {
	l := &layer{flags: flags, taken: map[string]bool{}}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			l.taken["--"+f.Name] = true
			// --from-time on the command line beats --from-beginning in the file: they exclude each other.
			for _, group := range f.Annotations[exclusive] {
				l.taken[group] = true
			}
		}
	})
	return l
}

func (l *layer) set(f *pflag.Flag, values []string, place string) {
	if l.err != nil || l.taken["--"+f.Name] {
		return
	}
	for _, group := range f.Annotations[exclusive] {
		if l.taken[group] {
			return
		}
	}
	var err error
	if many, ok := f.Value.(pflag.SliceValue); ok {
		err = many.Replace(values)
		f.Changed = true
	} else {
		err = l.flags.Set(f.Name, values[0])
	}
	if err != nil {
		l.err = fault.New(fault.Usage, fmt.Sprintf("Correct the value; 'synctl help environment' tells the layers, --help the values of --%s.", f.Name),
			"%s: --%s: %s", place, f.Name, reason(err))
	}
}

// reason is a flag error's cause, without pflag's repetition of value and name.
func reason(err error) string {
	if cause := errors.Unwrap(err); cause != nil {
		return cause.Error()
	}
	return err.Error()
}

func (a *App) applyConfig(cmd *cobra.Command) error {
	path, named := a.config, a.config != ""
	if !named {
		dir, err := a.configDir()
		if err != nil {
			return nil // without a home there is no default file
		}
		path = filepath.Join(dir, "config.yaml")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		if !named && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fault.New(fault.Usage, "Name a file that can be read with --config, or leave the flag out.", "read configuration: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fault.New(fault.Usage, "Correct the YAML.", "read configuration %s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil // nothing but comments
	}
	c := config{path: path, cmd: cmd, found: map[string]setting{}}
	if err := c.read(doc.Content[0], cmd.Root()); err != nil {
		return err
	}
	l := newLayer(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if s, ok := c.found[f.Name]; ok {
			l.set(f, s.values, s.place)
		}
	})
	return l.err
}

// config reads a configuration file for one command. The file nests as the commands do, and a key is a command or a flag; a
// flag counts for all commands below its place, the deepest place wins:
//
//	log-format: json
//	cdc:
//	  publish:
//	    to: kinesis://orders
type config struct {
	path  string
	cmd   *cobra.Command
	found map[string]setting // by flag
}

type setting struct {
	values []string
	place  string
}

// read takes the mapping that belongs to command at. The whole file is checked, also the parts of other commands: a key
// that nobody knows is an error at once and not on the day that the other command runs.
func (c *config) read(n *yaml.Node, at *cobra.Command) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return c.fault(n, "Write one 'flag: value' a line.", "want a mapping of flags and commands for %q", at.CommandPath())
	}
	seen := map[string]bool{}
	var nested []func() error
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			return c.fault(key, "Keep one of them.", "key %q occurs twice", key.Value)
		}
		seen[key.Value] = true
		if child := childNamed(at, key.Value); child != nil {
			// After the flags of this level, whatever the order in the file, so that the deeper place wins.
			nested = append(nested, func() error { return c.read(value, child) })
			continue
		}
		if key.Value == "config" || !knowsFlag(at, key.Value) {
			return c.fault(key, fmt.Sprintf("Use the name of a flag or of a command, as '%s --help' has it.", at.CommandPath()),
				"unknown key %q for %q", key.Value, at.CommandPath())
		}
		values, err := c.values(value)
		if err != nil {
			return err
		}
		if within(c.cmd, at) {
			c.found[key.Value] = setting{values, fmt.Sprintf("%s:%d", c.path, value.Line)}
		}
	}
	for _, f := range nested {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) values(n *yaml.Node) ([]string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.ScalarNode:
		return []string{n.Value}, nil
	case yaml.SequenceNode:
		var values []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return nil, c.fault(item, "Write a list of plain values.", "want a value")
			}
			values = append(values, item.Value)
		}
		if len(values) > 0 {
			return values, nil
		}
	}
	return nil, c.fault(n, "Write a value, or a list of values for a flag that can be repeated.", "want a value")
}

func (c *config) fault(n *yaml.Node, hint, format string, args ...any) error {
	return fault.New(fault.Usage, hint, "configuration %s:%d: %s", c.path, n.Line, fmt.Sprintf(format, args...))
}

func childNamed(cmd *cobra.Command, name string) *cobra.Command {
	for _, child := range cmd.Commands() {
		if child.Name() == name && name != "help" {
			return child
		}
	}
	return nil
}

// knowsFlag tells whether cmd or a command below it has the flag.
func knowsFlag(cmd *cobra.Command, name string) bool {
	if f := cmd.Flags().Lookup(name); f != nil {
		return configurable(f)
	}
	if f := cmd.Root().PersistentFlags().Lookup(name); f != nil {
		return configurable(f)
	}
	for _, child := range cmd.Commands() {
		if knowsFlag(child, name) {
			return true
		}
	}
	return false
}

// within tells whether cmd is at or below top.
func within(cmd, top *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd == top {
			return true
		}
	}
	return false
}
