package testkit

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Standby makes a hot standby of an Own cluster, which is restarted for it. It streams from the primary through a
// physical slot, so that it can be decoded from (PostgreSQL 16 and later).
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	c.exec(t, "postgres", "SELECT pg_create_physical_replication_slot('standby', true)")
	c.Stop(syscall.SIGINT)
	root, err := os.MkdirTemp("", "synctl-pg-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Cluster{Dir: filepath.Join(root, "data"), Bin: c.Bin, Version: c.Version, settings: maps.Clone(c.settings)}
	t.Cleanup(s.destroy)
	if out, err := exec.Command("cp", "-a", c.Dir, s.Dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the cluster: %v\n%s", err, out)
	}
	signal := filepath.Join(s.Dir, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root, signal} {
		if err := GiveToServer(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(s.Dir, "pg_replslot", "standby")); err != nil {
		t.Fatal(err)
	}
	s.settings["unix_socket_directories"] = root
	s.settings["hot_standby_feedback"] = "on"
	s.settings["primary_slot_name"] = "standby"
	s.settings["primary_conninfo"] = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres", c.Port)
	if s.Port, err = FreePort(); err != nil {
		t.Fatal(err)
	}
	for _, each := range []*Cluster{c, s} {
		if err := each.Start(); err != nil {
			t.Fatalf("start PostgreSQL: %v", err)
		}
	}
	return s
}
