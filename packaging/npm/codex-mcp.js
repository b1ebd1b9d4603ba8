#!/usr/bin/env node
// Runs the program from the package of this platform, as if it had been started itself: with the
// same arguments, streams, signals and exit code. See docs/releasing.md.
'use strict';

const fs = require('fs');
const os = require('os');
const tty = require('tty');
const { spawn } = require('child_process');
const { name, optionalDependencies } = require('../package.json');

// The program ends when the process with this ID, which must be its parent, has died.
const STARTER = 'CODEX_MCP_STARTER';

// Signals that end a program, or that it may handle.
const FORWARDED = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'];

// When keys or the end of a terminal cause these, the system sends them to the program, too.
const FROM_TERMINAL = ['SIGINT', 'SIGQUIT', 'SIGHUP'];

// How often it is checked whether our parent is still there, in milliseconds.
const INTERVAL = 500;

// Whether npx has started us: not only a program that has started us in turn.
const isNpx =
  process.env.npm_lifecycle_event === 'npx' &&
  /\bcodex-mcp\b/.test(process.env.npm_lifecycle_script || '');

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}

// The path of the program.
function findProgram() {
  const platform = `${process.platform}-${process.arch}`;
  const wanted = `${name}-${platform}`;
  const all = Object.keys(optionalDependencies);
  if (!all.includes(wanted)) {
    const platforms = all.map((other) => other.slice(name.length + 1)).join(', ');
    const advice = process.platform === 'win32' ? ' On Windows, use it in WSL.' : '';
    fail(`${name} does not support ${platform}, only ${platforms}.${advice}`);
  }
  try {
    return require.resolve(`${wanted}/bin/codex-mcp`);
  } catch (_) {
    return fail(
      `the package ${wanted}, which has the program for this platform, is not installed. ` +
        'npm leaves it out with `--omit=optional`, or with a lock file from another platform. ' +
        `Install it with \`npm install --include=optional ${name}\`.`
    );
  }
}

// Our environment without what npx has added for this one call: with it, Codex's commands would
// find programs of the current directory first, and answer questions of npm's with yes. Clients in
// different directories could not share one background process.
function environment() {
  const env = { ...process.env };
  if (!isNpx) {
    return env;
  }
  const ofCall = /^(INIT_CWD|npm_(?!config_).*|npm_config_(call|local_prefix|package|yes))$/;
  Object.keys(env)
    .filter((variable) => ofCall.test(variable))
    .forEach((variable) => delete env[variable]);
  const directories = (env.PATH || '').split(':');
  while (/\/(node_modules\/\.bin|node-gyp-bin)$/.test(directories[0])) {
    directories.shift();
  }
  env.PATH = directories.join(':');
  return env;
}

// Becomes the program, where Node can do that (since 22.15). Then nothing has to be handed over.
function becomeProgram(program, args, env) {
  // A shell stands between npx and us, and does not hand signals over: it only dies.
  const tied = isNpx ? { ...env, [STARTER]: String(process.ppid) } : env;
  process.execve(program, [program, ...args], tied);
}

// Runs the program as a child.
function startProgram(program, args, env) {
  const onTerminal = [0, 1, 2].some((stream) => tty.isatty(stream));
  const forwarded = FORWARDED.filter((signal) => !(onTerminal && FROM_TERMINAL.includes(signal)));
  let child;
  for (const signal of FORWARDED) {
    // Without a listener, the signal would end this process before the program has ended.
    process.on(signal, () => {
      if (forwarded.includes(signal)) {
        child.kill(signal);
      }
    });
  }
  child = spawn(program, args, {
    stdio: 'inherit',
    env: { ...env, [STARTER]: String(process.pid) },
  });
  child.on('error', (error) => fail(`cannot run ${program}: ${error.message}`));
  child.on('exit', endLike);
  if (isNpx) {
    endWithParent(child);
  }
}

// Ends the program when our parent has died. A second signal would have it end at once, so it gets
// one only.
function endWithParent(child) {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid !== parent) {
      clearInterval(timer);
      child.kill('SIGTERM');
    }
  }, INTERVAL);
}

// Ends this process as the program has ended.
function endLike(code, signal) {
  if (signal === null) {
    process.exit(code);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Node ignores SIGPIPE.
  process.exit(128 + os.constants.signals[signal]);
}

function main() {
  const program = findProgram();
  const args = process.argv.slice(2);
  const env = environment();
  try {
    // Where it fails, older versions of `execve` end the process without a word to the user.
    fs.accessSync(program, fs.constants.X_OK);
  } catch (error) {
    fail(`cannot run ${program}: ${error.message}`);
  }
  if (typeof process.execve === 'function') {
    becomeProgram(program, args, env);
  } else {
    startProgram(program, args, env);
  }
}

main();
