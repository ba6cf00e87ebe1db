package snapshot

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Prefix is that of the logical messages by which synctl talks to itself through the log. No feed delivers them.
const Prefix = "synctl"

// mark is the content of such a message: a chunk's low or high mark, or the request to snapshot a table.
type mark struct {
	Run   string `json:"run,omitempty"`
	Chunk int    `json:"chunk,omitempty"`
	Mark  string `json:"mark,omitempty"` // low, high

	Request *Request `json:"snapshot,omitempty"`
}

// Request asks the run that reads a slot to snapshot a table.
type Request struct {
	ID     string `json:"id"`
	Slot   string `json:"slot"`
	Schema string `json:"schema"`
	Table  string `json:"table"`
	Where  string `json:"where,omitempty"`
}

// Send puts the request into the log.
func (r Request) Send(ctx context.Context, conn *pgx.Conn) error {
	return emit(ctx, conn, mark{Request: &r})
}

// emit writes a transactional message: one that is not could be decoded long after it was written.
func emit(ctx context.Context, conn *pgx.Conn, m mark) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_logical_emit_message(true, $1, $2::text)`, Prefix, string(b)); err != nil {
		return fmt.Errorf("write a mark into the log: %w", err)
	}
	return nil
}
