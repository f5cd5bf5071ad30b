package httplimit

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// StatusField is the header in which Authz of a fixed refusal tells the status that it would have.
const StatusField = "X-Headgate-Status"

// Where gateways write the request that they ask about: nginx by the configuration in deploy/nginx, Traefik and Caddy by themselves.
var (
	methodFields = []string{"X-Original-Method", "X-Forwarded-Method"}
	uriFields    = []string{"X-Original-Uri", "X-Forwarded-Uri"}
)

// Authz returns a handler for gateways that ask before they pass a request on: 200 with nothing in it lets it through, what Wrap answers refuses it,
// and either has the headers. The original request's method and URI are those of X-Original-Method or X-Forwarded-Method, and of X-Original-URI or
// X-Forwarded-Uri; where there are none they are the call's own, without prefix, as Envoy's ext_authz asks. Other headers are taken as they come, so only
// gateways may reach it, which set these themselves; bodies are not read. refusal, if it is not zero, is the status of every refusal, with that of
// Wrap in StatusField: nginx's auth_request knows 401 and 403 alone. What is no URI or no method is answered 400, and so are two that differ: of the
// two headers of a kind a gateway sets one, and its client may have set the other.
func (m *Middleware) Authz(prefix string, refusal int) http.Handler {
	limited := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, ok := originalOf(r, prefix)
		if !ok {
			http.Error(w, "the original method or URI is none, or X-Original-* and X-Forwarded-* name two", http.StatusBadRequest)
			return
		}
		if refusal != 0 {
			w = &refusalWriter{w, refusal}
		}
		limited.ServeHTTP(w, asked)
	})
}

// originalOf is the request that a gateway asks about.
func originalOf(r *http.Request, prefix string) (*http.Request, bool) {
	asked := *r
	asked.Body, asked.ContentLength, asked.Pattern = http.NoBody, 0, ""
	uri, oneURI := oneOf(r.Header, uriFields)
	if uri == "" {
		if uri = strings.TrimPrefix(r.URL.RequestURI(), prefix); !strings.HasPrefix(uri, "/") {
			uri = "/" + uri
		}
	}
	method, oneMethod := oneOf(r.Header, methodFields)
	if method != "" {
		asked.Method = method
	}
	var err error
	asked.URL, err = url.ParseRequestURI(uri)
	asked.RequestURI = uri
	return &asked, err == nil && oneURI && oneMethod && isMethod(asked.Method)
}

// oneOf returns what headers say, "" where there is none, and whether all that are there say the same.
func oneOf(header http.Header, fields []string) (text string, same bool) {
	for _, field := range fields {
		for _, value := range header.Values(field) {
			if value != "" && text != "" && value != text {
				return "", false
			}
			text = cmp.Or(text, value)
		}
	}
	return text, true
}

// isMethod reports whether a text is a method of letters, as all in use are.
func isMethod(text string) bool {
	return len(text) <= 32 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// refusalWriter gives all refusals one status.
type refusalWriter struct {
	http.ResponseWriter

	status int
}

func (w *refusalWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.Header().Set(StatusField, strconv.Itoa(status))
		status = w.status
	}
	w.ResponseWriter.WriteHeader(status)
}
