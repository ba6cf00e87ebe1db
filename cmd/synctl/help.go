package main

import "github.com/spf13/cobra"

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `Every command ends with one of these codes:

  0    done, drained after a signal, or the reader of a pipe left
  1    failed: also a malformed line, a record too large, a full disk
  2    the command line or the configuration is wrong; nothing was done
  3    a server could not be reached or refused us: no such role or right, a slot in use, the connection of a temporary slot lost
  4    a check failed: wal_level, publication, a table without a key, a lost or foreign slot, a gap, a precondition, a verification
  5    finished, but records went to the dead-letter file
  130  forced to stop by SIGINT, or a finite load or swap interrupted by it
  143  the same by SIGTERM

The first SIGINT or SIGTERM asks a command that moves data to drain: it reads nothing more, finishes and acknowledges what is in
flight, and exits with 0. A second one, or the end of --drain-timeout, forces it. What was not acknowledged is
delivered again by the next run.

An error is two lines on stderr: what went wrong, and what to do next.

  synctl: error: replication slot "shop" does not exist
  next: Add --create to make it.

In scripts: 1 and 3 are worth another try with the same command; 2 and 4 need somebody to look; after 5 read the
dead-letter file.`,
	}
}

func newEnvironmentTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "Environment variables and the configuration file",
		Long: `Every flag of every command gets its value from the first of these that has it:

  1. the command line:      --queue-bytes 64MiB
  2. the environment:       SYNCTL_QUEUE_BYTES=64MiB
  3. the configuration file
  4. the default that --help shows

The variable of a flag is SYNCTL_ and its name in capitals, with _ for -. A flag that can be repeated takes a list with
commas. SYNCTL_FROM and SYNCTL_TO keep passwords out of the command line, which every user of a machine can read. An empty
variable counts as not set.

The configuration file is YAML, $XDG_CONFIG_HOME/synctl/config.yaml (~/.config/synctl/config.yaml) or what --config names. It nests
as the commands do; a flag counts for all commands below its place, and the deepest place wins:

  log-format: json
  cdc:
    from: postgres://app@db1/shop
    publish:
      slot: shop
      table: [public.orders, public.items]
      to: kinesis://orders?region=eu-central-1

A key that is neither a command nor a flag is an error (exit 2) that names its line. Of flags that exclude each other the one
from the higher layer counts.

Other variables that are heard:

  PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD, PGPASSFILE, PGSERVICE, PGSSLMODE, …
                    as in libpq: what a connection string leaves out
  AWS_PROFILE, AWS_REGION, AWS_ACCESS_KEY_ID, …
                    as in the AWS command line: credentials and region of Kinesis
  XDG_STATE_HOME    state that must last is under $XDG_STATE_HOME/synctl (~/.local/state/synctl)
  TERM=dumb         a log line instead of a bar as progress`,
	}
}

// helpTemplate is one line, a paragraph, the examples, and only then the flags: whoever asks for help mostly looks for the
// command to copy.
const helpTemplate = `{{.Short}}

{{with .Long}}{{. | trimTrailingWhitespaces}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

const usageTemplate = `{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:{{if and .Runnable (not (index .Annotations "group"))}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

Topics:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .CommandPath .CommandPathPadding}} {{.Short}}{{end}}{{end}}{{end}}
`
