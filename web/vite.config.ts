import preact from '@preact/preset-vite'
import { defineConfig, type Plugin, runnerImport } from 'vite'

// consolePaths writes console.json: the first segments of the paths of the console, which the server
// answers with its page.
const consolePaths: Plugin = {
  name: 'console-paths',
  async generateBundle() {
    const { module } = await runnerImport<typeof import('./src/console/routes')>('./src/console/routes.ts')
    this.emitFile({ type: 'asset', fileName: 'console.json', source: JSON.stringify(module.folders, null, 2) + '\n' })
  },
}

// Builds the scripts and styles of all pages into dist/. internal/web serves them in a folder that
// has the hash of all of them in its name, so they can be cached for ever and keep plain names here.
// It reads manifest.json to know what an entry needs; the pages themselves are templates in pages/.
export default defineConfig({
  base: './', // below any prefix of a proxy
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: false }), consolePaths],
  publicDir: false,
  build: {
    target: 'es2022',
    outDir: 'dist',
    manifest: 'manifest.json',
    assetsDir: '.',
    assetsInlineLimit: 0, // the policy of the pages allows no data: addresses
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 700, // hls.js
    license: { fileName: 'licenses.md' },
    rolldownOptions: {
      input: {
        console: 'src/console/main.tsx',
        watch: 'src/watch/main.tsx',
        docs: 'src/docs/docs.ts',
      },
      output: {
        entryFileNames: '[name].js',
        chunkFileNames: '[name].js',
        assetFileNames: '[name][extname]',
      },
    },
  },
})
