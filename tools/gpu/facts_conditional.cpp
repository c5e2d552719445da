// What may be captured into the body of a conditional node, which frameworks use for loops: calls
// captured there can use nothing else.
#include "tools/gpu/driver_extra.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

bool has_conditionals(const Extra& extra) {
  for (const auto& [name, there] :
       {std::pair{"cuGraphCreate", extra.cuGraphCreate != nullptr},
        std::pair{"cuGraphConditionalHandleCreate",
                  extra.cuGraphConditionalHandleCreate != nullptr},
        std::pair{"cuGraphAddNode_v2", extra.cuGraphAddNode_v2 != nullptr},
        std::pair{"cuStreamBeginCaptureToGraph", extra.cuStreamBeginCaptureToGraph != nullptr}}) {
    if (there) continue;
    say(name, "not there");
    return false;
  }
  return true;
}

// A graph of one conditional node whose body always runs.
struct Conditional {
  CUgraph graph = nullptr;
  CUgraph body = nullptr;
  Conditional(const Gpu& gpu, const Extra& extra) {
    must(extra.cuGraphCreate(&graph, 0), "cuGraphCreate");
    CUgraphNodeParams node{};
    node.type = kNodeConditional;
    constexpr unsigned assign_default = 1;  // at each launch
    must(extra.cuGraphConditionalHandleCreate(&node.conditional.handle, graph, gpu.context, 1,
                                              assign_default),
         "cuGraphConditionalHandleCreate");
    node.conditional.type = kConditionalIf;
    node.conditional.size = 1;
    node.conditional.ctx = gpu.context;
    CUgraphNode made = nullptr;
    must(extra.cuGraphAddNode_v2(&made, graph, nullptr, nullptr, 0, &node), "cuGraphAddNode");
    body = node.conditional.phGraph_out[0];
  }
};

// Whether the work is accepted by capture, by instantiation, and when run; stops at the first
// failure.
void tell_captured(const Gpu& gpu, const Extra& extra, CUstream stream, const char* name,
                   const std::function<CUresult()>& work) {
  stage(name);
  const Conditional conditional(gpu, extra);
  must(extra.cuStreamBeginCaptureToGraph(stream, conditional.body, nullptr, nullptr, 0,
                                         kCaptureThreadLocal),
       "cuStreamBeginCaptureToGraph");
  const CUresult captured = work();
  CUstreamCaptureStatus status = kCaptureNone;
  cu().capture_status(stream, &status);
  CUgraph ended_graph = nullptr;
  const CUresult ended = cu().capture_end(stream, &ended_graph);
  std::string told = captured == kSuccess ? "captured" : "refused: " + describe(captured);
  if (captured != kSuccess) {
    told += status == kCaptureActive ? ", the capture goes on" : ", the capture is lost";
  }
  if (ended != kSuccess) told += "; its end: " + describe(ended);
  if (captured != kSuccess || ended != kSuccess) return say(name, "%s", told.c_str());
  CUgraphExec exec = nullptr;
  const CUresult made = cu().graph_instantiate(&exec, conditional.graph, 0);
  if (made != kSuccess) {
    return say(name, "%s; refused by cuGraphInstantiate: %s", told.c_str(), describe(made).c_str());
  }
  CUresult ran = cu().graph_launch(exec, stream);
  if (ran == kSuccess) ran = cu().stream_synchronize(stream);
  say(name, "%s; runs: %s", told.c_str(), describe(ran).c_str());
}

}  // namespace

void probe_conditional() {
  const Gpu gpu;
  const Extra extra;
  if (!has_conditionals(extra)) return;
  const Kernels kernels;
  const CUstream stream = new_stream();
  const Words words(4);
  CUdeviceptr memory = 0;
  must(cu().mem_alloc(&memory, 1 << 20), "cuMemAlloc");
  words[1] = 1;
  const auto tell = [&](const char* name, const std::function<CUresult()>& work) {
    tell_captured(gpu, extra, stream, name, work);
  };
  tell("a kernel in a conditional body", [&] { return kernels.touch(stream, words.at(0), 7); });
  say("what that kernel wrote, expected 7", "%llu",
      static_cast<unsigned long long>(words[0].load()));
  tell("a write in a conditional body",
       [&] { return cu().write_value64(stream, words.at(2), 1, 0); });
  tell("a wait in a conditional body",
       [&] { return cu().wait_value64(stream, words.at(1), 1, kWaitValueGeq); });
  tell("a copy in a conditional body",
       [&] { return cu().memcpy_async(memory, memory + 4096, 4096, stream); });
  tell("a host function in a conditional body", [&] {
    return cu().launch_host_func(
        stream, [](void*) {}, nullptr);
  });
  tell("an event's record and wait in a conditional body", [&] {
    CUevent event = nullptr;
    CUresult result = cu().event_create(&event, kEventDisableTiming);
    if (result == kSuccess) result = cu().event_record(event, stream);
    return result == kSuccess ? cu().stream_wait_event(stream, event, 0) : result;
  });
  if (!cu().user_object_create || !cu().graph_retain_user_object) return;
  const Conditional conditional(gpu, extra);
  CUuserObject object = nullptr;
  must(cu().user_object_create(
           &object, nullptr, [](void*) {}, 1, kUserObjectNoDestructorSync),
       "cuUserObjectCreate");
  say("a user object of the body", "%s",
      describe(cu().graph_retain_user_object(conditional.body, object, 1, kGraphUserObjectMove))
          .c_str());
}

}  // namespace pith::facts
