# Varnish as a cache before weir, for all that is played, low latency too: it wakes everybody who
# waits for a part at once. Use it as /etc/varnish/default.vcl, and set the backend.
vcl 4.1;

import std;

backend weir {
  .host = "127.0.0.1"; # yours: where weir listens
  .port = "8080";
  .first_byte_timeout = 15s; # weir answers a request that waits for a part after 6 s
}

sub vcl_recv {
  # Not for caches, and what a viewer's credentials open.
  if (req.url !~ "^/hls/" || req.url ~ "^/hls/[^/]+/t/" || req.url ~ "(?i)[?&](jwt|accessKey)=" ||
      req.http.Livepeer-Jwt || req.http.Livepeer-Access-Key) {
    return (pass);
  }
  if (req.method != "GET" && req.method != "HEAD") {
    return (pass);
  }
  unset req.http.Cookie;
  unset req.http.Authorization;
  # Only what chooses the response: players add CMCD and other parameters of their own.
  set req.url = regsuball(req.url, "([?&])(?!(_HLS_(msn|part|skip)|ll)=)[^&]*", "\1");
  set req.url = regsub(regsuball(regsuball(req.url, "&+", "&"), "\?&", "?"), "[?&]$", "");
  set req.url = std.querysort(req.url);
  return (hash);
}

sub vcl_backend_response {
  # An old playlist makes players wait.
  if (bereq.url ~ "^/hls/") {
    set beresp.grace = 0s;
  }
}
