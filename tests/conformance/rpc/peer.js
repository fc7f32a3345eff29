// peer.js - gRPC's interoperability tests by @grpc/grpc-js, and its reflection client. NODE_PATH
// names the folder of the packages.
//
// usage: peer.js serve                  says "ready PORT", ends with its standard input
//        peer.js call TARGET CASE...    one line per case, "CASE ok" or "CASE failed: why"
//        peer.js reflect TARGET         "reflect ok" or why not
'use strict';
const assert = require('assert');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const INITIAL = 'x-grpc-test-echo-initial', TRAILING = 'x-grpc-test-echo-trailing-bin';
const REQUESTS = [27182, 8, 1828, 45904], RESPONSES = [31415, 9, 2653, 58979];
const SPECIAL = '\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \u{1f608}\t\n';
const testing = grpc.loadPackageDefinition(loader.loadSync('grpc/testing/test.proto', {
    includeDirs: ['/usr/share/grpc-proto'], keepCase: true, defaults: true,
})).grpc.testing;
const payload = (size) => ({body: Buffer.alloc(size)});
const size_of = (message) => (message.payload ? message.payload.body.length : 0);

// --------------------------------------------------------------------- server

function echo(call) {
    const initial = call.metadata.get(INITIAL), trailing = call.metadata.get(TRAILING);
    const metadata = new grpc.Metadata(), last = new grpc.Metadata();
    if (initial.length) {
        metadata.set(INITIAL, initial[0]);
        call.sendMetadata(metadata);
    }
    if (trailing.length)
        last.set(TRAILING, trailing[0]);
    return last;
}

function status_of(request, trailing) {
    const status = request.response_status;
    return status && status.code ? {code: status.code, details: status.message, metadata: trailing} : null;
}

const service = {
    EmptyCall: (call, done) => done(null, {}),
    UnaryCall(call, done) {
        const trailing = echo(call), status = status_of(call.request, trailing);
        if (status)
            done(status);
        else
            done(null, {payload: payload(call.request.response_size)}, trailing);
    },
    StreamingOutputCall(call) {
        for (const each of call.request.response_parameters)
            call.write({payload: payload(each.size)});
        call.end();
    },
    StreamingInputCall(call, done) {
        let sum = 0;
        call.on('data', (message) => { sum += size_of(message); });
        call.on('end', () => done(null, {aggregated_payload_size: sum}));
    },
    FullDuplexCall(call) {
        const trailing = echo(call);
        call.on('data', (request) => {
            const status = status_of(request, trailing);
            if (status)
                call.emit('error', status);
            for (const each of request.response_parameters)
                call.write({payload: payload(each.size)});
        });
        call.on('end', () => call.end(trailing));
    },
};

function serve() {
    const compression = {'grpc.default_compression_algorithm': 2};
    const server = new grpc.Server(compression);
    server.addService(testing.TestService.service, service);
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
        if (error)
            throw error;
        console.log('ready ' + port);
    });
    process.stdin.on('end', () => process.exit(0)).resume();
}

// --------------------------------------------------------------------- client

const soon = () => ({deadline: Date.now() + 20000});
const unary = (client, method, request, metadata) => new Promise((good, bad) => {
    const seen = {};
    const call = client[method](request, metadata || new grpc.Metadata(), soon(),
        (error, answer) => (error ? bad(error) : setImmediate(() => good({answer, ...seen}))));
    call.on('metadata', (received) => { seen.initial = received; });
    call.on('status', (status) => { seen.trailing = status.metadata; });
});

// Runs a stream to its end: what came, and how it ended.
function collect(call, on_data) {
    return new Promise((good) => {
        const seen = {sizes: []};
        call.on('metadata', (received) => { seen.initial = received; });
        call.on('data', (message) => {
            seen.sizes.push(size_of(message));
            if (on_data)
                on_data(call, seen);
        });
        call.on('error', () => {});
        call.on('status', (status) => good({...seen, status}));
    });
}

async function fails(promise, code, text) {
    const error = await promise.then(() => null, (reason) => reason);
    assert.ok(error, 'the call did not fail');
    assert.strictEqual(error.code, code, error.message);
    if (text !== undefined)
        assert.strictEqual(error.details, text);
}

const output = (size, answer) => ({payload: payload(size), response_parameters: [{size: answer}]});

const cases = {
    async empty_unary(client) {
        await unary(client, 'EmptyCall', {});
    },
    async large_unary(client) {
        const {answer} = await unary(client, 'UnaryCall', {response_size: 314159, payload: payload(271828)});
        assert.ok(answer.payload.body.equals(Buffer.alloc(314159)));
    },
    async client_compressed_unary(client, target) {
        const packed = new testing.TestService(target, grpc.credentials.createInsecure(),
            {'grpc.default_compression_algorithm': 2});
        await cases.large_unary(packed);
        await cases.client_streaming(packed);
        packed.close();
    },
    client_streaming: (client) => new Promise((good, bad) => {
        const call = client.StreamingInputCall(new grpc.Metadata(), soon(), (error, answer) => {
            if (error || answer.aggregated_payload_size !== 74922)
                bad(error || new Error('counted ' + answer.aggregated_payload_size));
            else
                good();
        });
        for (const size of REQUESTS)
            call.write({payload: payload(size)});
        call.end();
    }),
    async server_streaming(client) {
        const parameters = RESPONSES.map((size) => ({size}));
        const seen = await collect(client.StreamingOutputCall({response_parameters: parameters}, soon()));
        assert.deepStrictEqual([seen.sizes, seen.status.code], [RESPONSES, 0]);
    },
    async ping_pong(client) {
        const call = client.FullDuplexCall(soon());
        call.write(output(REQUESTS[0], RESPONSES[0]));
        const seen = await collect(call, (_, now) => {
            const n = now.sizes.length;
            if (n < REQUESTS.length)
                call.write(output(REQUESTS[n], RESPONSES[n]));
            else
                call.end();
        });
        assert.deepStrictEqual([seen.sizes, seen.status.code], [RESPONSES, 0]);
    },
    async empty_stream(client) {
        const call = client.FullDuplexCall(soon());
        call.end();
        const seen = await collect(call);
        assert.deepStrictEqual([seen.sizes, seen.status.code], [[], 0]);
    },
    async custom_metadata(client) {
        const metadata = new grpc.Metadata();
        metadata.set(INITIAL, 'test_initial_metadata_value');
        metadata.set(TRAILING, Buffer.from([0xab, 0xab, 0xab]));
        const one = await unary(client, 'UnaryCall', {response_size: 1, payload: payload(1)}, metadata);
        const call = client.FullDuplexCall(metadata, soon());
        call.end(output(1, 1));
        const two = await collect(call);
        for (const [initial, trailing] of [[one.initial, one.trailing], [two.initial, two.status.metadata]]) {
            assert.deepStrictEqual(initial.get(INITIAL), ['test_initial_metadata_value']);
            assert.deepStrictEqual(trailing.get(TRAILING), [Buffer.from([0xab, 0xab, 0xab])]);
        }
    },
    async status_code_and_message(client, target, text = 'test status message') {
        const response_status = {code: 2, message: text};
        await fails(unary(client, 'UnaryCall', {response_status}), 2, text);
        const call = client.FullDuplexCall(soon());
        call.end({response_status});
        const seen = await collect(call);
        assert.deepStrictEqual([seen.status.code, seen.status.details], [2, text]);
    },
    special_status_message: (client, target) => cases.status_code_and_message(client, target, SPECIAL),
    async unimplemented_method(client) {
        await fails(unary(client, 'UnimplementedCall', {}), grpc.status.UNIMPLEMENTED);
    },
    async unimplemented_service(client, target) {
        const other = new testing.UnimplementedService(target, grpc.credentials.createInsecure());
        await fails(unary(other, 'UnimplementedCall', {}), grpc.status.UNIMPLEMENTED);
        other.close();
    },
    cancel_after_begin: (client) => new Promise((good, bad) => {
        const call = client.StreamingInputCall(new grpc.Metadata(), soon(), (error) => {
            if (error && error.code === grpc.status.CANCELLED)
                good();
            else
                bad(error || new Error('it did not fail'));
        });
        call.cancel();
    }),
    async cancel_after_first_response(client) {
        const call = client.FullDuplexCall(soon());
        call.write(output(27182, 31415));
        const seen = await collect(call, () => call.cancel());
        assert.deepStrictEqual([seen.sizes, seen.status.code], [[31415], grpc.status.CANCELLED]);
    },
    async timeout_on_sleeping_server(client) {
        const call = client.FullDuplexCall({deadline: Date.now() + 1});
        call.write({payload: payload(27182)});
        const seen = await collect(call);
        assert.strictEqual(seen.status.code, grpc.status.DEADLINE_EXCEEDED);
    },
};

async function run(names, one) {
    let failed = false;
    for (const name of names) {
        try {
            await one(name);
            console.log(name + ' ok');
        } catch (error) {
            failed = true;
            console.log(name + ' failed: ' + String(error.message).replace(/\s+/g, ' '));
        }
    }
    process.exit(failed ? 1 : 0);
}

function call(target, names) {
    const client = new testing.TestService(target, grpc.credentials.createInsecure());
    return run(names, (name) => {
        if (!cases[name])
            throw new Error('no such case');
        return cases[name](client, target);
    });
}

// ------------------------------------------------------------------ reflection

async function reflect(target) {
    const {GrpcReflection} = require('grpc-js-reflection-client');
    for (const version of ['v1', 'v1alpha']) {
        const client = new GrpcReflection(target, grpc.ChannelCredentials.createInsecure(), undefined, undefined, version);
        const services = await client.listServices();
        assert.ok(services.includes('grpc.testing.TestService'), 'services: ' + services);
        // (protobufjs cannot load messages.proto of grpc.testing: "duplicate name 'RpcsByPeer'".)
        const methods = (await client.listMethods('grpc.health.v1.Health')).map((method) => method.name);
        assert.deepStrictEqual(methods.sort(), ['Check', 'Watch']);
        // A call by nothing but what reflection said.
        const found = await client.getDescriptorBySymbol('grpc.health.v1.Health');
        const made = found.getPackageObject({keepCase: true, enums: String}).grpc.health.v1;
        const stub = new made.Health(target, grpc.credentials.createInsecure());
        const {answer} = await unary(stub, 'Check', {service: 'grpc.testing.TestService'});
        assert.strictEqual(answer.status, 'SERVING');
        stub.close();
    }
}

const [mode, target, ...names] = process.argv.slice(2);
if (mode === 'serve')
    serve();
else if (mode === 'call')
    call(target, names);
else
    run(['reflect'], () => reflect(target));
