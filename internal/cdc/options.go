package cdc

import (
	"log/slog"
	"regexp"
	"strings"
	"time"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/record"
)

// UnresolvedType says what becomes of values whose type was altered or dropped since the change was written.
type UnresolvedType uint8

const (
	UnresolvedFail UnresolvedType = iota // the run ends with an error that names the type
	UnresolvedText                       // they are written as PostgreSQL's text, in a JSON string
)

// Options say what to capture. DSN and one of Tables, Publication and Slot are needed; all else has a use of its zero value.
type Options struct {
	DSN         pg.DSN
	Tables      []string // schema.table, * globs; none: all that the publication has
	Publication string   // "": a temporary one for Tables, or with Slot the one named after it
	Slot        string   // "": a temporary slot, gone with the run
	Create      bool     // make publication and slot when they are missing; needs Slot

	UntilLSN     record.LSN // end with the last transaction that ends at or below it; 0: never
	UntilNow     bool       // as UntilLSN with the server's position at the start
	Limit        int64      // end after so many records, with a durable slot at the end of their transaction; 0: never
	Transactions bool       // also records of begin and commit

	StatusInterval time.Duration // between status messages; 0: 10 s; never more than a third of wal_sender_timeout
	State          string        // state file; "": below StateDir by system and slot
	StateDir       string        // $XDG_STATE_HOME/synctl
	AcceptGap      bool          // go on where the slot stands although changes are missing
	StallTimeout   time.Duration // without progress while there is work, the run fails; 0: never
	MaxWALHeld     int64         // bytes of WAL held back by the slot at which the run fails; 0: never
	UnresolvedType UnresolvedType

	Snapshot           SnapshotMode
	SnapshotWorkers    int   // connections that read rows at the same time; 0: 1
	SnapshotChunkBytes int64 // of rows between two marks; 0: 4 MiB
	SnapshotRate       int64 // rows per second in all, at most; 0: no limit

	CheckOnly   bool         // make nothing: Open checks, and says in Plan what it would make
	Application string       // application_name; "": synctl
	Log         *slog.Logger // nil: silent
}

// TableName names a table.
type TableName struct{ Schema, Name string }

func (t TableName) String() string { return t.Schema + "." + t.Name }

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (o *Options) check() error {
	if o.Application == "" {
		o.Application = "synctl"
	}
	if o.StatusInterval <= 0 {
		o.StatusInterval = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(o.Tables) == 0 && o.Publication == "" && o.Slot == "":
		return fault.New(fault.Usage, "Give --table schema.table (repeatable, * matches any name), --publication NAME or --slot NAME.", "nothing says which tables to capture")
	case o.Create && o.Slot == "":
		return fault.New(fault.Usage, "Give --slot NAME; without it slot and publication are temporary and need no --create.", "--create without --slot")
	case o.Slot != "" && !slotName.MatchString(o.Slot):
		return fault.New(fault.Usage, "PostgreSQL allows lower-case letters, digits and underscores, 63 at most.", "slot name %q", o.Slot)
	case strings.HasPrefix(o.Slot, tmpPrefix) || strings.HasPrefix(o.Publication, tmpPrefix):
		return fault.New(fault.Usage, "Choose another name.", "names that begin with %s are those of temporary slots and publications, which synctl drops", tmpPrefix)
	case o.UntilNow && o.UntilLSN != 0:
		return fault.New(fault.Usage, "", "both a position and now to end at")
	}
	_, err := newFilter(o.Tables)
	return err
}

// filter tells which tables are asked for.
type filter struct{ patterns []TableName }

func newFilter(patterns []string) (*filter, error) {
	f := &filter{}
	for _, p := range patterns {
		t, ok := splitPattern(p)
		if !ok {
			return nil, fault.New(fault.Usage, `Give it as schema.table, for example public.orders or sales.*; names with dots go in double quotes.`, "table %q", p)
		}
		f.patterns = append(f.patterns, t)
	}
	return f, nil
}

// splitPattern takes schema.table apart; either part may be in double quotes.
func splitPattern(p string) (t TableName, ok bool) {
	part := func() (string, bool) {
		if strings.HasPrefix(p, `"`) {
			end := strings.Index(p[1:], `"`)
			if end < 0 {
				return "", false
			}
			s := p[1 : 1+end]
			p = p[2+end:]
			return s, s != ""
		}
		i := strings.IndexByte(p, '.')
		if i < 0 {
			i = len(p)
		}
		s := p[:i]
		p = p[i:]
		return s, s != ""
	}
	if t.Schema, ok = part(); !ok || !strings.HasPrefix(p, ".") {
		return t, false
	}
	p = p[1:]
	t.Name, ok = part()
	return t, ok && p == ""
}

// match tells whether a table is asked for. Without patterns every table is.
func (f *filter) match(schema, name string) bool {
	for _, p := range f.patterns {
		if glob(p.Schema, schema) && glob(p.Name, name) {
			return true
		}
	}
	return len(f.patterns) == 0
}

// glob matches name against a pattern in which * stands for any text.
func glob(pattern, name string) bool {
	first, rest, any := strings.Cut(pattern, "*")
	if !any {
		return pattern == name
	}
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	for {
		part, more, any := strings.Cut(rest, "*")
		if !any {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], more
	}
}
