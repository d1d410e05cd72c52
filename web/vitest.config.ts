import { defineConfig } from 'vitest/config'

// The unit tests of src/. They run in Node, with what src/test/browser.ts gives them of a browser.
export default defineConfig({
  test: {
    include: ['src/**/*.test.ts'],
    setupFiles: ['src/test/browser.ts'],
    pool: 'threads',
    testTimeout: 60_000, // of a busy machine; the tests themselves wait for nothing
    maxWorkers: 2,
    // For Node, tus-js-client has other code than for browsers.
    alias: {
      'tus-js-client': new URL('node_modules/tus-js-client/lib.esm/browser/index.js', import.meta.url).pathname,
    },
    server: { deps: { inline: [/tus-js-client/] } },
  },
})
