package swap

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

func asPgError(err error) (*pgconn.PgError, bool) { return errors.AsType[*pgconn.PgError](err) }

func hasCode(err error, codes ...string) bool {
	pgErr, ok := asPgError(err)
	if !ok {
		return false
	}
	for _, c := range codes {
		if pgErr.Code == c {
			return true
		}
	}
	return false
}
