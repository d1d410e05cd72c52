package api

import (
	"net/http"
	"slices"
	"strings"
)

// router finds the route of a request. http.ServeMux refuses pairs such as /stream/{id}/sessions
// and /stream/sessions/{parentId} as ambiguous. Here the route with the earlier fixed part wins.
type router struct {
	bySize map[string][][]*route // method → number of segments → routes, best first
}

// route is one endpoint; its path is relative to /api.
type route struct {
	method   string
	path     string
	who      who
	handle   handler
	segments []string
}

func newRouter(table []route) *router {
	rt := &router{bySize: map[string][][]*route{}}
	for i := range table {
		r := &table[i]
		r.segments = strings.Split(strings.TrimPrefix(r.path, "/"), "/")
		sizes := rt.bySize[r.method]
		for len(sizes) <= len(r.segments) {
			sizes = append(sizes, nil)
		}
		sizes[len(r.segments)] = append(sizes[len(r.segments)], r)
		rt.bySize[r.method] = sizes
	}
	for _, sizes := range rt.bySize {
		for _, routes := range sizes {
			slices.SortStableFunc(routes, func(a, b *route) int {
				return slices.CompareFunc(a.segments, b.segments, func(x, y string) int { return wild(x) - wild(y) })
			})
		}
	}
	return rt
}

func wild(segment string) int {
	if strings.HasPrefix(segment, "{") {
		return 1
	}
	return 0
}

// match returns the route of a request and sets its path values, or nil.
func (rt *router) match(r *http.Request) *route {
	path, ok := strings.CutPrefix(r.URL.Path, "/api/")
	if !ok {
		return nil
	}
	found := rt.find(r.Method, path)
	if found == nil && r.Method == http.MethodHead {
		found = rt.find(http.MethodGet, path)
	}
	if found != nil {
		found.setValues(r, path)
	}
	return found
}

func (rt *router) find(method, path string) *route {
	sizes := rt.bySize[method]
	n := strings.Count(path, "/") + 1
	if n >= len(sizes) {
		return nil
	}
	for _, candidate := range sizes[n] {
		if candidate.matches(path) {
			return candidate
		}
	}
	return nil
}

func (rt *route) matches(path string) bool {
	for _, want := range rt.segments {
		got, rest, _ := strings.Cut(path, "/")
		if got == "" || wild(want) == 0 && got != want {
			return false
		}
		path = rest
	}
	return true
}

func (rt *route) setValues(r *http.Request, path string) {
	for _, want := range rt.segments {
		got, rest, _ := strings.Cut(path, "/")
		if wild(want) == 1 {
			r.SetPathValue(want[1:len(want)-1], got)
		}
		path = rest
	}
}
