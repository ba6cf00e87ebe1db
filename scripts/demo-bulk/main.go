// Command demo-bulk is what 'make demo-bulk' needs beside synctl: it writes a data set, and it is the application that goes on
// working while the data set is brought live.
//
//	demo-bulk data FILE ROWS   writes a Parquet file
//	demo-bulk traffic          reads and writes until SIGTERM, then says how it went; exits with 1 if a statement failed
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo-bulk:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "data":
		rows, err := strconv.Atoi(args[2])
		if err != nil {
			return fmt.Errorf("rows: %w", err)
		}
		return writeData(args[1], rows)
	case len(args) == 1 && args[0] == "traffic":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return traffic(ctx)
	}
	return fmt.Errorf("usage: demo-bulk data FILE ROWS | demo-bulk traffic")
}
