package cdc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// tmpPrefix begins the names of what is made for one run. Eight hexadecimal digits follow: the second half of the key of
// the advisory lock that the run holds while it lives.
const tmpPrefix = "synctl_tmp_"

// lockClass is the first half of that key: "sctl".
const lockClass = 0x7363746c

// publicationInfo is a publication as the catalogue has it.
type publicationInfo struct {
	name         string
	all, viaRoot bool
	updates      bool // updates or deletes are published, for which tables need an identity
	tables       []tableInfo
}

// readPublication reads a publication and what it publishes; nil when there is none.
func readPublication(ctx context.Context, conn *pgx.Conn, name string) (*publicationInfo, error) {
	p := &publicationInfo{name: name}
	err := conn.QueryRow(ctx, `SELECT puballtables, pubviaroot, pubupdate OR pubdelete FROM pg_publication WHERE pubname = $1`, name).
		Scan(&p.all, &p.viaRoot, &p.updates)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read publication %s: %w", name, err)
	}
	p.tables, err = readTables(ctx, conn, `WHERE c.oid IN (SELECT relid FROM pg_get_publication_tables($1))`, name)
	if err != nil {
		return nil, fmt.Errorf("read publication %s: %w", name, err)
	}
	return p, nil
}

// checkPublication compares a publication with the tables asked for and their identities.
func checkPublication(ctx context.Context, conn *pgx.Conn, p *publicationInfo, f *filter) ([]tableInfo, error) {
	tables := p.tables
	if len(f.patterns) > 0 {
		wanted, err := wantedTables(ctx, conn, f)
		if err != nil {
			return nil, err
		}
		published := map[uint32]bool{}
		for _, t := range p.tables {
			published[t.oid] = true
			if t.parent != 0 && !p.viaRoot {
				published[t.parent] = true // the root is asked for, its leaves are what comes
			}
		}
		var missing []string
		for _, t := range wanted {
			if !published[t.oid] && !(t.parent != 0 && published[t.parent]) {
				missing = append(missing, t.name.String())
			}
		}
		if len(missing) > 0 {
			return nil, fault.New(fault.Check,
				fmt.Sprintf("Run ALTER PUBLICATION %s ADD TABLE %s, or leave them out of --table.", pg.Ident(p.name), strings.Join(missing, ", ")),
				"publication %s does not publish %s", p.name, strings.Join(missing, ", "))
		}
		tables = slices.DeleteFunc(slices.Clone(tables), func(t tableInfo) bool {
			return !slices.ContainsFunc(wanted, func(w tableInfo) bool { return w.oid == t.oid || w.oid == t.parent })
		})
	}
	if p.updates {
		// All of them, also those that are not asked for: the publication makes their updates fail whoever reads it.
		if err := checkIdentity(ctx, conn, p.tables, p.viaRoot); err != nil {
			return nil, fmt.Errorf("publication %s: %w", p.name, err)
		}
	}
	return tables, nil
}

// planPublication resolves the tables for a publication that is to be made. Partitions go under their root.
func planPublication(ctx context.Context, conn *pgx.Conn, f *filter) ([]tableInfo, error) {
	wanted, err := wantedTables(ctx, conn, f)
	if err != nil {
		return nil, err
	}
	roots := map[uint32]bool{}
	for _, t := range wanted {
		roots[t.oid] = true
	}
	wanted = slices.DeleteFunc(wanted, func(t tableInfo) bool { return t.parent != 0 && roots[t.parent] })
	return wanted, checkIdentity(ctx, conn, wanted, true)
}

// standbyPublication refuses what only the primary can make, with the statement that makes it there.
func standbyPublication(name string, tables []tableInfo) error {
	if name == "" {
		name = "synctl"
	}
	return fault.New(fault.Check,
		fmt.Sprintf("Run on the primary: %s. Then name it here with --publication %s.", publicationStatement(name, tables), name),
		"the server is a standby, which cannot make a publication")
}

func publicationStatement(name string, tables []tableInfo) string {
	var names []string
	for _, t := range tables {
		names = append(names, pg.Ident(t.name.Schema, t.name.Name))
	}
	// ONLY: children by inheritance are tables of their own; a partitioned table is published with its partitions anyway.
	return "CREATE PUBLICATION " + pg.Ident(name) + " FOR TABLE ONLY " + strings.Join(names, ", ONLY ") + " WITH (publish_via_partition_root = true)"
}

// createPublication publishes exactly these tables, partitions as their root.
func createPublication(ctx context.Context, conn *pgx.Conn, name string, tables []tableInfo) error {
	_, err := conn.Exec(ctx, publicationStatement(name, tables))
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "42501" {
		return fault.New(fault.Unreachable,
			"Creating a publication takes CREATE on the database and ownership of the tables; or let their owner make one, and name it with --publication.",
			"create publication %s: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("create publication %s: %w", name, err)
	}
	return nil
}

// temporaryPublication makes a publication for this run. The advisory lock is taken first and held by the session, so
// that no other start takes the publication for a leftover.
func temporaryPublication(ctx context.Context, conn *pgx.Conn, tables []tableInfo) (string, error) {
	for {
		var b [4]byte
		rand.Read(b[:])
		key := int32(binary.BigEndian.Uint32(b[:]))
		var free bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, int32(lockClass), key).Scan(&free); err != nil {
			return "", fmt.Errorf("guard the temporary publication: %w", err)
		}
		if free {
			name := tmpPrefix + fmt.Sprintf("%08x", uint32(key))
			return name, createPublication(ctx, conn, name, tables)
		}
	}
}

func dropPublication(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, "DROP PUBLICATION IF EXISTS "+pg.Ident(name)); err != nil {
		return fmt.Errorf("drop publication %s: %w", name, err)
	}
	return nil
}

// dropLeftovers drops the temporary publications of runs that were killed: those whose lock nobody holds. One that is
// another role's is left, and said.
func dropLeftovers(ctx context.Context, conn *pgx.Conn, log *slog.Logger) error {
	rows, err := conn.Query(ctx, `SELECT pubname::text FROM pg_publication WHERE starts_with(pubname::text, $1)`, tmpPrefix)
	if err != nil {
		return fmt.Errorf("look for leftover publications: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for leftover publications: %w", err)
	}
	for _, name := range names {
		key, err := strconv.ParseUint(name[len(tmpPrefix):], 16, 32)
		if err != nil {
			continue // not one of ours
		}
		var free bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, int32(lockClass), int32(uint32(key))).Scan(&free); err != nil {
			return fmt.Errorf("look for leftover publications: %w", err)
		}
		if !free {
			continue
		}
		err = dropPublication(ctx, conn, name)
		if err == nil {
			log.Info("dropped the temporary publication of a run that was killed", "publication", name)
		} else {
			log.Warn("a temporary publication of a run that was killed could not be dropped", "publication", name, "error", err)
		}
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1, $2)`, int32(lockClass), int32(uint32(key))); err != nil {
			return fmt.Errorf("look for leftover publications: %w", err)
		}
	}
	return nil
}
