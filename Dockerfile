# The binary alone, on an image without a shell, as a user who is not root.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /headgate ./cmd/headgate

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /headgate /headgate
# The image holds no redis-server: without an address Headgate falls back to a store inside its process, which is
# for a first look. Give it one, as docker-compose.yml does.
# Nor does it hold anything that worker --exec could run: for that, COPY --from=headgate /headgate into an image of yours.
ENTRYPOINT ["/headgate"]
CMD ["demo"]
