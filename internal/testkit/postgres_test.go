package testkit

import (
	"context"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestClusterServesDatabases(t *testing.T) {
	conn := Connect(t, Shared(t).Database(t))
	var level string
	if err := conn.QueryRow(context.Background(), "SHOW wal_level").Scan(&level); err != nil {
		t.Fatal(err)
	}
	if level != "logical" {
		t.Fatalf("wal_level is %q, want logical", level)
	}
}
