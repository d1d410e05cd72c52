// Package bench measures weir against others, in one run and as ratios.
//
// The benchmarks are tests behind the build tag `bench`, because they need the
// same neighbours (PostgreSQL, the built binary) as tests do: make bench-api,
// make bench-vod and its short form make bench-vod-quick, make bench-vod-films,
// make bench-live, make bench-clip, make bench-views.
package bench
