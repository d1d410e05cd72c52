# docker build -t weir . && docker run -p 8080:8080 -p 1935:1935 -p 8890:8890/udp -p 8189:8189/udp -p 8189:8189/tcp -v weir:/data weir
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags=-s -o /weir .

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates ffmpeg \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --home-dir /data weir \
 && install -d -o weir -g weir -m 700 /data
COPY --from=build /weir /usr/local/bin/weir
USER weir
ENV WEIR_DATA=/data
VOLUME /data
EXPOSE 8080 1935 8890/udp 8189/udp 8189/tcp
ENTRYPOINT ["weir"]
CMD ["serve"]
