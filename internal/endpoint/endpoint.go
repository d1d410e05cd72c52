// Package endpoint has what every HTTP handler of weir does, whatever it serves.
//
// A handler wraps the http.ResponseWriter in a [Response], which records what was sent and sets
// deadlines, and calls End at the end. [FailureOf] turns an error into the response that clients get:
// a status and {"errors": [...]}. [Caching] has all values of Cache-Control by name, and [CORS] lets
// pages of other origins use a handler. [ClientAddr] and [RequestBase] read what trusted proxies say
// about a request.
package endpoint
