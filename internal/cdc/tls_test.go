package cdc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// TestTLS: over an encrypted connection, where bytes come in records of the cipher's, rows of all sizes come whole, and
// a quiet connection goes on after its read deadlines.
func TestTLS(t *testing.T) {
	c := testkit.Own(t, testkit.Options{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: cert}, "server.key": {Type: "EC PRIVATE KEY", Bytes: der}} {
		path := filepath.Join(c.Dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	dsn := c.Database(t)
	conn := testkit.Connect(t, dsn)
	if _, err := conn.Exec(t.Context(), `ALTER SYSTEM SET ssl = on`); err != nil {
		t.Skipf("the server is built without TLS: %v", err)
	}
	c.Stop(syscall.SIGINT)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	dsn = strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)
	conn = testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text); ALTER TABLE a ALTER v SET STORAGE EXTERNAL`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: "tls", Create: true})
	const rows = 2000
	testkit.Exec(t, conn, `INSERT INTO a SELECT i, repeat('x', (i * 7919) % 3000) FROM generate_series(1, 1999) i`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2000, repeat('y', 3000000))`)
	r.wait(rows)
	time.Sleep(time.Second) // keepalives and deadlines
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2001, 'late')`)
	r.wait(rows + 1)
	var encrypted bool
	if err := conn.QueryRow(t.Context(), `SELECT bool_and(s.ssl) FROM pg_stat_replication r JOIN pg_stat_ssl s USING (pid)`).Scan(&encrypted); err != nil || !encrypted {
		t.Errorf("encrypted: %v, %v", encrypted, err)
	}
	got := r.stop()
	for i, change := range got[:1999] {
		if want := strings.Repeat("x", (i+1)*7919%3000); !strings.Contains(string(change.After), `"v":"`+want+`"`) {
			t.Fatalf("row %d: %.200s", i+1, change.After)
		}
	}
	if len(got) != rows+1 || len(got[1999].After) < 3000000 {
		t.Errorf("%d rows, the large one has %d bytes", len(got), len(got[1999].After))
	}
}
