# docker build -t weir . && docker run -p 8080:8080 -v weir:/data weir
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -buildvcs=false -trimpath -o /weir .

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
EXPOSE 8080
ENTRYPOINT ["weir"]
CMD ["serve"]
