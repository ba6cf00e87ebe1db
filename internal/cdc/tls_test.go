package cdc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// TestTLS reads rows through an encrypted connection, where each row is a TLS record of its own: reading must not wait
// for every one of them, or twenty thousand would take the better part of a minute.
func TestTLS(t *testing.T) {
	t.Parallel()
	cluster := testkit.Own(t, testkit.Options{})
	certificate(t, cluster.Dir)
	dsn := cluster.Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `ALTER SYSTEM SET ssl = on`)
	testkit.Exec(t, conn, `SELECT pg_reload_conf()`)
	encrypted := strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)
	if encrypted == dsn {
		t.Fatalf("no sslmode=disable in %s", dsn)
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // until the server has taken note of it
		c, err := pgx.Connect(t.Context(), encrypted)
		if err == nil {
			c.Close(t.Context())
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	testkit.Exec(t, conn, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
	r := start(t, Options{DSN: pg.DSN(encrypted), Tables: []string{"public.t"}})
	const rows = 20_000
	testkit.Exec(t, conn, `INSERT INTO t SELECT g, 'value ' || g FROM generate_series(1, 20000) g`)
	var used bool
	if err := conn.QueryRow(t.Context(), `SELECT bool_and(s.ssl) FROM pg_stat_replication r JOIN pg_stat_ssl s USING (pid)`).Scan(&used); err != nil || !used {
		t.Fatalf("the replication connection is encrypted: %v, %v", used, err)
	}
	r.wait(rows)
	if got := r.stop(); len(got) != rows || got[0].String() != `insert t  {"id":1,"v":"value 1"}` || got[rows-1].String() != `insert t  {"id":20000,"v":"value 20000"}` {
		t.Fatalf("%d records, from %v to %v", len(got), got[0], got[len(got)-1])
	}
}

// certificate puts a new self-signed certificate where the server looks for it.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "PRIVATE KEY", Bytes: private}} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := testkit.GiveToServer(path); err != nil {
			t.Fatal(err)
		}
	}
}
