// Uploads a file by tus, in pieces, and goes on by itself when the server was away.
//
//   node tus.mjs FILE ENDPOINT BYTES-A-PIECE
//
// Prints one line for each answer of the server: its method, status and offset.

import { createReadStream, statSync } from "node:fs";
import { Upload } from "tus-js-client";

const [file, endpoint, piece] = process.argv.slice(2);
const upload = new Upload(createReadStream(file), {
  endpoint,
  uploadSize: statSync(file).size,
  chunkSize: Number(piece),
  metadata: { filename: "film.mkv", filetype: "video/x-matroska" },
  retryDelays: Array(300).fill(200),
  onAfterResponse: (request, response) => console.log(request.getMethod(), response.getStatus(), response.getHeader("Upload-Offset")),
  onError: (error) => {
    console.error(`${error}`);
    process.exit(1);
  },
  onSuccess: () => console.log("done"),
});
upload.start();
