// rival.cc - the yardstick's echo by C++ gRPC's callback API, on the same core. Built by
// rival.py.
//
//     rival serve ADDRESS   says "ready", ends with its standard input
//     rival load            per line "TARGET CALLS SECONDS" of standard input one line
//                           "CALLS_PER_SECOND P50_US"; CALLS are kept in flight
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "rival.grpc.pb.h"

using berth::bench::v1::Ref;
using berth::bench::v1::Yardstick;
using Clock = std::chrono::steady_clock;

class Service final : public Yardstick::CallbackService
{
    grpc::ServerUnaryReactor *Echo(grpc::CallbackServerContext *context, const Ref *request,
                                   Ref *response) override
    {
        *response = *request;
        auto *reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }
};

static int serve(const std::string &address)
{
    Service service;
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    if (!server)
        return 1;
    std::cout << "ready" << std::endl;
    while (std::cin.get() != EOF) {
    }
    server->Shutdown();
    return 0;
}

// One call in flight, begun again when it has ended.
struct Lane {
    Yardstick::Stub *stub;
    std::atomic<bool> *stop;
    std::function<void(bool)> ended;
    std::unique_ptr<grpc::ClientContext> context;
    Ref request, response;
    Clock::time_point begin;
    std::vector<double> micros;

    void start()
    {
        context = std::make_unique<grpc::ClientContext>();
        begin = Clock::now();
        stub->async()->Echo(context.get(), &request, &response, [this](grpc::Status status) {
            micros.push_back(
                std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
            if (!status.ok() || stop->load())
                ended(status.ok());
            else
                start();
        });
    }
};

static bool run(Yardstick::Stub *stub, int calls, double seconds)
{
    std::atomic<bool> stop{false}, good{true};
    std::mutex mutex;
    std::condition_variable changed;
    int left = calls;
    std::vector<Lane> lanes(calls);
    auto begin = Clock::now();
    for (auto &lane : lanes) {
        lane.stub = stub;
        lane.stop = &stop;
        lane.request.set_tenant_id("default");
        lane.request.set_session_id("bench-echo-00000");
        lane.ended = [&](bool ok) {
            if (!ok)
                good = false;
            std::lock_guard<std::mutex> lock(mutex);
            if (--left == 0)
                changed.notify_all();
        };
        lane.start();
    }
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait_for(lock, std::chrono::duration<double>(seconds),
                         [&] { return left == 0; });
        stop = true;
        changed.wait(lock, [&] { return left == 0; });
    }
    double took = std::chrono::duration<double>(Clock::now() - begin).count();
    std::vector<double> all;
    for (auto &lane : lanes)
        all.insert(all.end(), lane.micros.begin(), lane.micros.end());
    std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
    std::cout << all.size() / took << " " << all[all.size() / 2] << std::endl;
    return good;
}

static int load()
{
    std::string line, target, known;
    std::unique_ptr<Yardstick::Stub> stub;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        int calls;
        double seconds;
        words >> target >> calls >> seconds;
        if (target != known) {
            grpc::ChannelArguments args;
            args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
            args.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
            args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
            args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
            stub = Yardstick::NewStub(
                grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), args));
            known = target;
        }
        if (!run(stub.get(), calls, seconds))
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && std::string(argv[1]) == "serve")
        return serve(argv[2]);
    if (argc == 2 && std::string(argv[1]) == "load")
        return load();
    std::cerr << "usage: rival serve ADDRESS | load" << std::endl;
    return 1;
}
