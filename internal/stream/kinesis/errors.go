package kinesis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

// code is the service's error code in err, empty when the service did not answer.
func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

// throttle tells an answer that says "not so fast".
func throttle(err error) bool {
	switch code(err) {
	case "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "ThrottlingException", "Throttling":
		return true
	}
	return false
}

// transient tells a failure that the same call can survive: no answer, a fault of the service, a rate.
func transient(err error) bool {
	if throttle(err) {
		return true
	}
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		// No answer came, or not all of one. What could not even be made into a request is ours to mend.
		_, unmade := errors.AsType[*smithy.SerializationError](err)
		return !unmade && !invalidParams(err)
	}
	switch e.ErrorCode() {
	case "ResourceInUseException", "InternalFailure", "InternalFailureException", "ServiceUnavailable", "RequestTimeout", "RequestExpired":
		return true
	}
	return e.ErrorFault() == smithy.FaultServer || status(err) >= 500
}

func invalidParams(err error) bool {
	_, ok := errors.AsType[smithy.InvalidParamsError](err)
	return ok
}

func status(err error) int {
	if e, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		return e.HTTPStatusCode()
	}
	return 0
}

// explain makes the fault that a person reads of a call that failed for good. action names the IAM action.
func explain(o Options, action string, err error) error {
	url := o.URL()
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s on %s: %w", action, url, err)
	}
	switch c := code(err); {
	case c == "ResourceNotFoundException":
		return stream.NotFound(url)
	case strings.HasPrefix(c, "AccessDenied"):
		return fault.New(fault.Unreachable, "Allow kinesis:"+action+" on the stream in the role's policy; docs/kinesis.md lists every action that is needed.",
			"%s on %s is denied: %w", action, url, err)
	case strings.HasPrefix(c, "KMS"):
		return fault.New(fault.Unreachable, "Allow kms:GenerateDataKey and kms:Decrypt on the key that encrypts the stream, and see that it is enabled.",
			"%s on %s: the stream's key cannot be used: %w", action, url, err)
	case c == "UnrecognizedClientException" || c == "InvalidSignatureException" || c == "ExpiredTokenException" ||
		c == "InvalidClientTokenId" || c == "IncompleteSignatureException" || c == "MissingAuthenticationTokenException":
		return fault.New(fault.Unreachable, credentialsHint, "%s on %s: the credentials were refused: %w", action, url, err)
	case c == "":
		return fault.New(fault.Unreachable, "See that the endpoint of the region (or endpoint=) can be reached from here: network, proxy, VPC endpoint.",
			"%s on %s got no answer: %w", action, url, err)
	}
	return fault.New(fault.Failed, "", "%s on %s: %w", action, url, err)
}
