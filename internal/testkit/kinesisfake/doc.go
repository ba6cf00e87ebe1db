// Package kinesisfake is a Kinesis Data Streams that lives in the test's process: an HTTP server speaking AWS JSON 1.1
// with the operations, limits and errors that synctl meets, and with the faults that no emulator produces: entries
// refused one by one, acknowledgements lost after storing, requests that are stored long after their client gave up.
//
// Faults are drawn from a seeded generator (Faults) or decided call by call (Script). With Options.CheckOrder the server
// also asserts the publisher's law (promise 2): no two entries of a key in one request, and no new entry of a key before
// the one before it was acknowledged; Violations lists what broke it.
//
// It keeps everything in memory, knows one account and one region, checks no signatures, and has no SubscribeToShard.
package kinesisfake
