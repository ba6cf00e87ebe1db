package bulk

import (
	"context"
	"fmt"
	"strings"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// transformSQL is the team's own SQL with the names put in.
func (l *Load) transformSQL() string {
	return strings.NewReplacer("{{staging}}", l.staging.ident(), "{{table}}", pg.Ident(l.live.schema, l.live.name)).Replace(l.o.Transform)
}

// transform runs the team's SQL, as one transaction unless it says otherwise, and counts what is there then.
func (l *Load) transform(ctx context.Context, sum *Summary) error {
	if l.o.Transform == "" {
		return nil
	}
	if _, err := l.conn.PgConn().Exec(ctx, l.transformSQL()).ReadAll(); err != nil {
		return fault.Wrap(fault.Failed, "Mend the SQL; the staging table was removed, unless --keep-staging was given.", fmt.Errorf("transform: %w", err))
	}
	var n int64
	if err := l.conn.QueryRow(ctx, "SELECT count(*) FROM "+l.staging.ident()).Scan(&n); err != nil {
		return fault.Wrap(fault.Failed, "Mend the SQL: the staging table has to be there after it.", fmt.Errorf("count rows after transform: %w", err))
	}
	sum.AfterSQL = &n
	return nil
}

// Plan is what a load would do.
type Plan struct {
	Table      string   `json:"table"`
	Staging    string   `json:"staging"`
	Source     string   `json:"source"`
	Rows       int64    `json:"rows"`  // -1: unknown
	Bytes      int64    `json:"bytes"` // -1: unknown
	Estimated  bool     `json:"estimated"`
	Parts      int      `json:"parts"`
	PartsName  string   `json:"parts_name"`
	Note       string   `json:"note,omitempty"`
	Format     string   `json:"copy_format"`
	TextReason string   `json:"copy_format_reason,omitempty"`
	Readers    int      `json:"readers"`
	Writers    int      `json:"writers"`
	SQL        []string `json:"sql"`
}

// Plan checks all that a load checks before it begins, changes nothing, and tells the SQL that would run.
func (l *Load) Plan(ctx context.Context) (*Plan, error) {
	defer l.close()
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	old, err := l.agree(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.precheck(ctx, old); err != nil {
		return nil, err
	}
	size := l.source.Size()
	p := &Plan{Table: l.live.String(), Staging: l.staging.String(), Source: l.source.Name(), Rows: size.Rows, Bytes: size.Bytes, Estimated: !size.Exact,
		Parts: size.Parts, PartsName: size.PartsName, Note: size.Note, Format: l.format.String(), TextReason: l.why, Readers: l.o.Readers, Writers: l.o.Writers}
	if old {
		p.SQL = append(p.SQL, "DROP TABLE IF EXISTS "+l.staging.ident())
	}
	p.SQL = append(p.SQL, l.staging.createSQL()...)
	p.SQL = append(p.SQL, l.staging.copySQL(l.inputs, l.format))
	if l.o.Transform != "" {
		p.SQL = append(p.SQL, l.transformSQL())
	}
	p.SQL = append(p.SQL, l.staging.finishSQL()...)
	return p, nil
}
