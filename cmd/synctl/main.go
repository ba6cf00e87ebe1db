// Command synctl keeps data in step between systems.
package main

import (
	"os"

	"synctl/internal/cli"
)

func main() { os.Exit(run(cli.System(), os.Args[1:])) }
