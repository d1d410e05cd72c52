import { expect, test } from 'vitest'
import { ApiError, sentence } from './error'

test.each([
  [400, { errors: ['name is missing', 'url is no URL'] }, 'name is missing; url is no URL'],
  [422, { errors: ['The file is damaged.', '{"code":"damaged"}'] }, 'The file is damaged.'], // what is for programs is left out
  [422, { errors: ['{"code":"damaged"}'] }, '{"code":"damaged"}'],
  [502, '<html>Bad gateway</html>', 'The server answered with status 502.'], // of a proxy
  [500, { errors: [] }, 'The server answered with status 500.'],
  [404, undefined, 'The server answered with status 404.'],
  [0, undefined, 'The server does not answer.'],
])('status %d with %j', (status, body, text) => expect(sentence(status, body)).toBe(text))

test.each([
  [0, true],
  [400, false],
  [401, false],
  [404, false],
  [409, false],
  [429, true],
  [500, true],
  [501, false], // this server does not do it
  [503, true],
])('the same request may succeed later after status %d: %s', (status, temporary) => {
  expect(new ApiError(status, '').temporary).toBe(temporary)
})
