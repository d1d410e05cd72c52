// What went wrong between the page and the server.

// ApiError is an answer that is no success. Its message is what the API said.
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }

  // temporary says whether the same request may succeed later. 501 is what this server does not do.
  get temporary(): boolean {
    return this.status === 0 || this.status === 429 || (this.status >= 500 && this.status !== 501)
  }
}

// sentence returns what an error answer says.
export function sentence(status: number, body: unknown): string {
  const errors = (body as { errors?: unknown } | undefined)?.errors
  if (Array.isArray(errors) && errors.length > 0) {
    const sentences = errors.filter((e) => typeof e === 'string' && !e.startsWith('{')) // the others are for programs
    return (sentences.length > 0 ? sentences : errors).join('; ')
  }
  return status === 0 ? 'The server does not answer.' : `The server answered with status ${status}.`
}
