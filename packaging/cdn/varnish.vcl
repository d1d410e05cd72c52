# Varnish as a cache before weir, for all that is played, low latency too: it wakes everybody who
# waits for a part at once. Use it as /etc/varnish/default.vcl, and set the backend.
vcl 4.1;

import std;

backend weir {
  .host = "127.0.0.1"; # yours: where weir listens
  .port = "8080";
  .first_byte_timeout = 15s; # weir answers a request that waits for a part after 6 s
}

# Gated content is kept too if weir has the same secret (--cache-secret). The cache asks weir whether a
# viewer may play, keeps that for 5 s, and fetches what all viewers share without their tokens.
sub use_secret {
  set req.http.Weir-Secret = ""; # yours: 32 letters and digits or more; empty = gated content is passed
}

sub vcl_recv {
  if (req.restarts == 0) { # only the cache itself says what these say
    unset req.http.Weir-Cache;
    unset req.http.Weir-File;
    unset req.http.Weir-Admitted;
  }
  # Not for caches, and what a viewer's credentials open.
  if (req.url !~ "^/hls/" || req.url ~ "(?i)[?&](jwt|accessKey)=" ||
      req.http.Livepeer-Jwt || req.http.Livepeer-Access-Key) {
    return (pass);
  }
  if (req.method != "GET" && req.method != "HEAD") {
    return (pass);
  }
  unset req.http.Cookie;
  unset req.http.Authorization;
  if (req.http.Weir-Admitted) {
    set req.url = req.http.Weir-File;
  } elsif (req.url ~ "^/hls/[^/]+/t/") { # an address with a viewer's token
    call use_secret;
    set req.http.Weir-Cache = req.http.Weir-Secret;
    unset req.http.Weir-Secret;
    if (req.http.Weir-Cache == "" || req.url !~ "^/hls/[^/]+/t/[^/]+/") {
      unset req.http.Weir-Cache;
      return (pass);
    }
    set req.http.Weir-File = regsub(req.url, "^(/hls/[^/]+)/t/[^/]+/", "\1/");
    set req.url = regsub(req.url, "^(/hls/[^/]+/t/[^/]+/).*$", "\1admission");
    return (hash);
  }
  # Only what chooses the response: players add CMCD and other parameters of their own.
  set req.url = regsuball(req.url, "([?&])(?!(_HLS_(msn|part|skip)|ll)=)[^&]*", "\1");
  set req.url = regsub(regsuball(regsuball(req.url, "&+", "&"), "\?&", "?"), "[?&]$", "");
  set req.url = std.querysort(req.url);
  return (hash);
}

# Gated content has entries of its own: nobody gets them at the address of public content.
sub vcl_hash {
  if (req.http.Weir-Cache) {
    hash_data("gated");
  }
}

sub vcl_deliver {
  if (req.http.Weir-File && !req.http.Weir-Admitted) {
    if (resp.status == 204) {
      set req.http.Weir-Admitted = "yes";
      return (restart);
    }
  } elsif (req.http.Weir-Admitted) { # other caches on the way to the viewer must not keep it
    set resp.http.Cache-Control = regsub(resp.http.Cache-Control, "^public", "private");
  }
}

# While weir does not answer, all who want the same share one attempt a second.
sub vcl_backend_error {
  set beresp.ttl = 1s;
  set beresp.http.Access-Control-Allow-Origin = "*";
}

sub vcl_backend_response {
  # An old playlist makes players wait.
  if (bereq.url ~ "^/hls/") {
    set beresp.grace = 0s;
  }
}
