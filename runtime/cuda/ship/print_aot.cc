#include "runtime/cuda/ship/print_aot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <string_view>

#include "compiler/codegen_llvm/print_header.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/ship/aot_text.h"
#include "runtime/cuda/ship/print_aot_tables.h"
#include "runtime/cuda/ship/print_backward.h"
#include "runtime/data/storage_of.h"

namespace cellc {

namespace {

/// A template as a part of a larger file, in which what it includes of its kind stands before it.
std::string host_part(const char* name) {
  std::string text(kernel_template(name));
  constexpr std::string_view include = "#include \"kernels-templates/";
  for (std::size_t at; (at = text.find(include)) != std::string::npos;) text.erase(at, text.find('\n', at) + 1 - at);
  return text + "\n";
}

std::string host_parts() {
  return host_part("host_stage.h") + host_part("host_scan.h") + host_part("host_lanes.h") + host_part("host_plan.h") +
         host_part("nest_frame.cuh") + host_part("host_tiles.h") + host_part("host_nest_tables.h") +
         host_part("host_nest_kernels.h") + host_part("host_nest_products.h") + host_part("host_nests.h") +
         host_part("host_cell.h") + host_part("host_arrays.h") + host_part("host_call_plan.h") +
         host_part("host_call.h");
}
std::string host_parts(const AotBackward* backward) {
  return host_parts() + (backward ? host_part("host_sums.h") + host_part("host_gradients.h") +
                                        host_part("host_shifts.h") + host_part("host_backward.h")
                                  : std::string());
}

std::string kernels_of(const AotCell& cell, const AotBackward* backward) {
  return "// The templates hold more than any one cell uses.\n"
         "#if defined(__NVCC__) || defined(__CUDACC_RTC__)\n#pragma nv_diag_suppress 177\n#endif\n\n" +
         cell.text + (backward ? backward->adjoint().text : std::string()) +
         "#if defined(__NVCC__) || defined(__CUDACC_RTC__)\n#pragma nv_diag_default 177\n#endif\n\n";
}

std::string strings(const std::string& name, const std::vector<std::string>& texts) {
  std::string body;
  for (const std::string& t : texts) body += fmt::format("  \"{}\",\n", t);
  return fmt::format("static const char* const {}[] = {{\n{}}};\n", name, body);
}

std::vector<std::string> kernel_names(const AotCell& cell, const AotBackward* backward) {
  std::vector<std::string> names = cell.kernels;
  if (backward) names.insert(names.end(), backward->adjoint().kernels.begin(), backward->adjoint().kernels.end());
  return names;
}

/// By array: what results about it mean.
struct FieldWords {
  explicit FieldWords(const CallLayout& layout) {
    for (const CallField& f : layout.fields) {
      missing.push_back(f.member + " is a null pointer");
      foreign.push_back(f.member + " is not memory of the current device");
      unaligned.push_back(f.member + " is not aligned to its entries");
    }
  }
  std::vector<std::string> missing, foreign, unaligned;
};

/// Room of a call, and what results mean.
std::string room_and_words(const AotCell& cell, const CallLayout& layout, const std::string& p,
                           const char* error_text) {
  const CallRoom r = call_room(cell.table());
  std::string text = fmt::format(
      "typedef struct {0}_room {{\n"
      "  cellc_nest_array symbols[{1}], part[{2}];\n"
      "  cellc_rows_view inputs[{1}], states[{3}], outs[{4}];\n"
      "  uint64_t finals[{3}], remade[{3}], addresses[{5}], before[{6}], once[{7}], starts[{8}], lasts[{8}], "
      "argument[{9}], sums[{12}];\n"
      "  cellc_view views[{10}];\n"
      "  cellc_plan plans[{11}];\n"
      "  int sum_parts[{11}];\n"
      "}} {0}_room;\n\n"
      "static inline cellc_work {0}_work({0}_room* r) {{\n"
      "  cellc_work w;\n"
      "  memset(r, 0, sizeof *r);\n"
      "  w.symbols = r->symbols, w.inputs = r->inputs, w.states = r->states, w.outs = r->outs, w.finals = "
      "r->finals, w.remade = r->remade;\n"
      "  w.part = r->part, w.addresses = r->addresses, w.before = r->before, w.once = r->once, w.views = "
      "r->views;\n"
      "  w.starts = r->starts, w.lasts = r->lasts, w.argument = r->argument;\n"
      "  w.plans = r->plans, w.sum_parts = r->sum_parts, w.sums = r->sums;\n"
      "  return w;\n"
      "}}\n\n",
      p, r.symbols, r.part, r.states, r.outs, r.addresses, r.before, r.once, r.starts, r.argument_words, r.views,
      r.stages, r.sums);
  const FieldWords words(layout);
  text += strings(p + "_missing", words.missing) + strings(p + "_foreign", words.foreign) +
          strings(p + "_unaligned", words.unaligned);
  text += fmt::format(
      "static inline const char* {0}_words(int result) {{\n"
      "  if (result >= CELLC_UNALIGNED_FIELD && result < CELLC_UNALIGNED_FIELD + {2}) return {0}_unaligned[result "
      "- CELLC_UNALIGNED_FIELD];\n"
      "  if (result >= CELLC_DEVICE_ERROR) {{\n{1}  }}\n"
      "  if (result >= CELLC_FOREIGN_FIELD && result < CELLC_FOREIGN_FIELD + {2}) return {0}_foreign[result "
      "- CELLC_FOREIGN_FIELD];\n"
      "  if (result >= CELLC_MISSING_FIELD && result < CELLC_MISSING_FIELD + {2}) return {0}_missing[result "
      "- CELLC_MISSING_FIELD];\n"
      "  return cellc_message(result);\n"
      "}}\n\n",
      p, error_text, layout.fields.size());
  return text;
}

std::string plan_lines(const AotCell& cell) {
  std::string text;
  for (const std::string& line : cell.plan) text += fmt::format(" *   {}\n", line);
  return text;
}

CallStructs structs_of(const AotCell& cell, const ShipRequest& request) {
  return {cell.cell(), cell.layout(), storage_of(request.dtype), request.steps, request.prefix, true};
}

/// A header's beginning, up to its structs. `backward`: of a build that has gradients, whose header is another one as a
/// whole: a compiler refuses both, in the place of passing over one of them.
std::string header_head(const AotCell& cell, const ShipRequest& request, const std::string& includes, bool backward) {
  return fmt::format("#ifndef {0}{3}\n#define {0}{3}\n\n{1}\n{2}", include_guard(structs_of(cell, request)), includes,
                     print_result_names(), backward ? "_BACKWARD" : "");
}

/// `text` with names of its own: whatever begins with cellc_ or CELLC_ begins with that and a number of the text. A
/// unit may then include headers of several cells and versions, each with its host code once for each version, beside
/// cellc.h. Names of the cell, which begin with `kept`, stay.
std::string with_own_names(const std::string& text, const std::string& number, const std::string& kept) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string result;
  bool quoted = false;  // in a string, which no line of ours leaves open
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const bool begins = at == 0 || !in_name(text[at - 1]);
    if (text[at] == '"') quoted = !quoted;
    if (text[at] == '\n') quoted = false;
    const bool space = rest.starts_with("cellc::") || (rest.starts_with("cellc ") && result.ends_with("namespace "));
    if (begins && !quoted && space) {
      result += "cellc_" + number;
      at += 5;
    } else if (begins && !quoted && (rest.starts_with("cellc_") || rest.starts_with("CELLC_")) &&
               !rest.starts_with(kept + "_")) {
      result += std::string(rest.substr(0, 6)) + number + "_";
      at += 6;
    } else {
      result += text[at++];
    }
  }
  return result;
}

const char* const kPromise =
    " *\n"
    " * A call queues its work on a stream and returns: it neither waits for the device nor allocates. Every "
    "written\n"
    " * step agrees with the step code to the tolerance: what runs in parallel is checked on the device, and "
    "repaired\n"
    " * there until it does. Calls keep nothing between them but what the workspace holds. Nothing is "
    "written unless a\n"
    " * call gives 0. Threads may call at once, each with a workspace of its own; so may calls on different "
    "streams.\n";

std::string comment_on_calls(const std::string& p) {
  return fmt::format(
      "/* The workspace's size for calls with these lengths and arrays; with arrays null, for any arrays. "
      "The result is\n"
      " * 0 or says what is wrong.\n"
      " *\n"
      " * {0}_forward: workspace and status lie on the device. status is null or [sequences]; it is 0 for "
      "each that is\n"
      " * done. `keep` in the lengths: what was learned about the data serves the next call. */\n",
      p);
}

/// The tables and functions of a header that launches a module.
std::string module_functions(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                             const std::string& file, const AotBackward* backward) {
  const std::string& p = request.prefix;
  const std::vector<std::string> kernels = kernel_names(cell, backward);
  const char* const error_text =
      "    const char* words = 0;\n"
      "    (void)cuGetErrorString((CUresult)(result - CELLC_DEVICE_ERROR), &words);\n"
      "    return words ? words : \"no such result\";\n";
  std::string text;
  text += print_aot_tables(cell, p);
  text += strings(p + "_kernel_names", kernels);
  text += room_and_words(cell, cell.layout(), p, error_text);
  if (backward)
    text += print_backward_tables(*backward, request) +
            room_and_words(backward->adjoint(), backward->layout(), backward->request().prefix, error_text);
  text += fmt::format(
      "/* The kernels in one context. */\n"
      "typedef struct {0}_module {{\n"
      "  CUmodule module;\n"
      "  CUcontext context;\n"
      "  CUfunction kernels[{1}];\n"
      "}} {0}_module;\n\n"
      "/* `image`: the contents of {2}, in memory{3}. Into the current context. */\n"
      "static inline int {0}_load({0}_module* m, const void* image) {{\n"
      "  memset(m, 0, sizeof *m);\n"
      "  return cellc_driver_load(&m->module, m->kernels, {0}_kernel_names, {1}, &m->context, image);\n"
      "}}\n"
      "static inline void {0}_unload({0}_module* m) {{\n"
      "  if (m->module) (void)cuModuleUnload(m->module);\n"
      "  memset(m, 0, sizeof *m);\n"
      "}}\n\n",
      p, kernels.size(), file, file.size() > 4 && file.substr(file.size() - 4) == ".ptx" ? ", ended by a zero" : "");
  text += comment_on_calls(p);
  const auto body = [&](const char* stream, const std::string& call) {
    return fmt::format(
        "  cellc_driver driver;\n"
        "  cellc_device device;\n"
        "  cellc_device_call call;\n"
        "  {0}_room room;\n"
        "  cellc_work work = {0}_work(&room);\n"
        "  int refused;\n"
        "  if (!m || !m->module) return CELLC_NOT_LOADED;\n"
        "  refused = cellc_driver_open(&{0}_cell, m->kernels, m->context, {1}, &driver, &device);\n"
        "  if (refused) return refused;\n"
        "  memset(&call, 0, sizeof call);\n"
        "  call.cell = &{0}_cell;\n"
        "  call.device = &device;\n"
        "  return {2};\n",
        p, stream, call);
  };
  text += fmt::format(
      "static inline int {0}_workspace(const {0}_module* m, const {0}_lengths* lengths, const {0}_arrays* "
      "arrays, int64_t* bytes) {{\n{1}}}\n\n"
      "/* In the context that the module was loaded into, which must be the current one. */\n"
      "static inline int {0}_forward(const {0}_module* m, const {0}_lengths* lengths, const {0}_arrays* "
      "arrays, CUstream stream,\n"
      "                              CUdeviceptr workspace, int64_t workspace_bytes, CUdeviceptr status) "
      "{{\n{2}}}\n\n"
      "/* What a result means; what this was compiled from. */\n"
      "static inline const char* {0}_message(int result) {{ return {0}_words(result); }}\n"
      "static inline const char* {0}_about(void) {{ return \"{3}\"; }}\n\n",
      p, body("0", "cellc_count_bytes(&call, &work, lengths, arrays, bytes)"),
      body("stream",
           "cellc_run_call(&call, &work, lengths, arrays, (uint64_t)workspace, workspace_bytes, "
           "(uint64_t)status)"),
      origin.about);
  if (backward) text += module_backward(*backward, request, cell.kernels.size(), origin.about);
  return text;
}

}  // namespace

std::string print_source_header(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                                const AotBackward* backward) {
  const std::string& p = request.prefix;
  return fmt::format(
             "/* {0}. Generated: change the cell, not this file.\n{1} * plan:\n{2}{3}"
             " * {4}_message has words for what a call gives. */\n"
             "{5}"
             "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
             origin.about, origin.lines, plan_lines(cell), kPromise, p,
             header_head(cell, request, "#include <stdint.h>\n", false)) +
         print_call_structs(structs_of(cell, request)) + comment_on_calls(p) +
         "/* On the calling thread's current device; stream: a cudaStream_t.\n" +
         print_checked_functions(
             structs_of(cell, request),
             {{p + "_workspace", fmt::format("const {0}_lengths* lengths, const {0}_arrays* arrays, int64_t* bytes", p),
               "lengths, arrays, bytes"},
              {p + "_forward",
               fmt::format("const {0}_lengths* lengths, const {0}_arrays* arrays, void* stream, void* workspace,\n"
                           "    int64_t workspace_bytes, int32_t* status",
                           p),
               "lengths, arrays, stream, workspace, workspace_bytes, status"}}) +
         fmt::format(
             "/* What a result means; what this was compiled from. */\n"
             "const char* {0}_message(int result);\n"
             "const char* {0}_about(void);\n\n"
             "#ifdef __cplusplus\n}}\n#endif\n#endif\n",
             p) +
         (backward
              ? print_behind_header(backward_structs(*backward, request), declared_backward(*backward, request, false))
              : std::string());
}

std::string print_cuda_source(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                              const AotBackward* backward) {
  const std::string& p = request.prefix;
  std::string text = fmt::format(
      "/* {0}. Generated: change the cell, not this file.\n{1} * plan:\n{2}{3}"
      " *\n"
      " * Compile it alone: nvcc -c FILE.cu, for compute capability 8.0 or newer, as C++17 or newer. First "
      "the kernels,\n"
      " * fixed templates around the cell's own step (structs Step and StepWithTransition); then how a call is planned "
      "and queued;\n"
      " * tables of this cell; its functions, which the header declares. */\n"
      "#include <cuda_runtime.h>\n#include <stdint.h>\n#include <string.h>\n\n",
      origin.about, origin.lines, plan_lines(cell), kPromise);
  text += kernels_of(cell, backward);
  text += "// The host's part " + std::string(90, '-') + "\n\n";
  text += host_parts(backward) + host_part("host_cudart.h");
  const auto kernel_table = [](const AotCell& of, const std::string& prefix) {
    std::string table;
    for (std::size_t k = 0; k < of.kernels.size(); ++k)
      table += fmt::format("  reinterpret_cast<const void*>(&{}{}),\n", of.places[k], of.kernels[k]);
    return fmt::format("const void* const {0}_kernels[] = {{\n{1}}};\n\n", prefix, table);
  };
  const char* const error_text =
      "    return cudaGetErrorString(static_cast<cudaError_t>(result - CELLC_DEVICE_ERROR));\n";
  text += "namespace {\n\n" + print_aot_tables(cell, p) + kernel_table(cell, p);
  text += room_and_words(cell, cell.layout(), p, error_text);
  if (backward) {
    const std::string& of = backward->request().prefix;
    text += print_backward_tables(*backward, request) + kernel_table(backward->adjoint(), of) +
            room_and_words(backward->adjoint(), backward->layout(), of, error_text);
  }
  text += "}  // namespace\n\n";
  text += print_call_structs(structs_of(cell, request));
  if (backward) text += print_backward_arrays(backward_structs(*backward, request));
  text += fmt::format(
      "extern \"C\" int {0}_workspace(const {0}_lengths* lengths, const {0}_arrays* arrays, int64_t* bytes) "
      "{{\n"
      "  cellc_cuda cuda;\n"
      "  cellc_device device;\n"
      "  cellc_device_call call = {{}};\n"
      "  {0}_room room;\n"
      "  cellc_work work = {0}_work(&room);\n"
      "  const int refused = cellc_cuda_open(&{0}_cell, {0}_kernels, nullptr, &cuda, &device);\n"
      "  if (refused) return refused;\n"
      "  call.cell = &{0}_cell;\n"
      "  call.device = &device;\n"
      "  return cellc_count_bytes(&call, &work, lengths, arrays, bytes);\n"
      "}}\n\n"
      "extern \"C\" int {0}_forward(const {0}_lengths* lengths, const {0}_arrays* arrays, void* stream, "
      "void* workspace,\n"
      "                {1}int64_t workspace_bytes, int32_t* status) {{\n"
      "  cellc_cuda cuda;\n"
      "  cellc_device device;\n"
      "  cellc_device_call call = {{}};\n"
      "  {0}_room room;\n"
      "  cellc_work work = {0}_work(&room);\n"
      "  const int refused = cellc_cuda_open(&{0}_cell, {0}_kernels, stream, &cuda, &device);\n"
      "  if (refused) return refused;\n"
      "  call.cell = &{0}_cell;\n"
      "  call.device = &device;\n"
      "  return cellc_run_call(&call, &work, lengths, arrays, reinterpret_cast<uint64_t>(workspace), "
      "workspace_bytes,\n"
      "                        reinterpret_cast<uint64_t>(status));\n"
      "}}\n\n"
      "// What the header calls, with the number of its structs.\n"
      "extern \"C\" int {0}_workspace_as(int64_t layout, const {0}_lengths* lengths, const {0}_arrays* arrays, "
      "int64_t* bytes) {{\n"
      "  return layout == INT64_C({3:#x}) ? {0}_workspace(lengths, arrays, bytes) : CELLC_OTHER_LAYOUT;\n"
      "}}\n\n"
      "extern \"C\" int {0}_forward_as(int64_t layout, const {0}_lengths* lengths, const {0}_arrays* arrays, void* "
      "stream,\n"
      "                   {1}void* workspace, int64_t workspace_bytes, int32_t* status) {{\n"
      "  if (layout != INT64_C({3:#x})) return CELLC_OTHER_LAYOUT;\n"
      "  return {0}_forward(lengths, arrays, stream, workspace, workspace_bytes, status);\n"
      "}}\n\n"
      "extern \"C\" const char* {0}_message(int result) {{ return {0}_words(result); }}\n"
      "extern \"C\" const char* {0}_about(void) {{ return \"{2}\"; }}\n",
      p, std::string(p.size() + 10, ' '), origin.about, layout_number(structs_of(cell, request)));
  if (backward) text += "\n" + source_backward(*backward, request, origin.about);
  return text;
}

std::string print_module_source(const AotCell& cell, const ShipOrigin& origin, const AotBackward* backward) {
  return fmt::format("// {}\n", origin.about) + kernels_of(cell, backward);
}

std::string print_module_header(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                                const std::string& file, const AotBackward* backward) {
  const std::string& p = request.prefix;
  std::string text = fmt::format(
      "/* {0}. Generated: change the cell, not this file.\n{1} * plan:\n{2}{3}"
      " *\n"
      " * The kernels are in {4}. This header launches them through the CUDA driver: a program that includes "
      "it needs\n"
      " * cuda.h and libcuda. {5}_message has words for what a call gives. */\n"
      "{6}",
      origin.about, origin.lines, plan_lines(cell), kPromise, file, p,
      header_head(cell, request, "#include <cuda.h>\n#include <stdint.h>\n#include <string.h>\n", backward != nullptr));
  text += print_call_structs(structs_of(cell, request));
  if (backward) text += print_backward_arrays(backward_structs(*backward, request));
  // What kernels take stands in a namespace, which C has not.
  const std::string host =
      renamed(renamed(host_parts(backward) + host_part("host_driver.h"), "NestFrame", "cellc_NestFrame"),
              "ProductArguments", "cellc_ProductArguments");
  return text +
         with_own_names(host + module_functions(cell, request, origin, file, backward), text_number(host).substr(0, 8),
                        p) +
         "#endif\n";
}

std::string print_library_header(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                                 const std::string& file, const AotBackward* backward) {
  const std::string& p = request.prefix;
  const CallStructs structs = structs_of(cell, request);
  const std::string call =
      fmt::format("const {0}_module* m, const {0}_lengths* lengths, const {0}_arrays* arrays, ", p);
  return fmt::format(
             "/* {0}. Generated: change the cell, not this file.\n{1} * plan:\n{2}{3}"
             " *\n"
             " * {4} has the kernels and what launches them. It needs no header and no library of CUDA: it looks for "
             "the\n"
             " * driver (libcuda.so.1) when it is called. {5}_message has words for what a call gives. */\n"
             "{6}"
             "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
             origin.about, origin.lines, plan_lines(cell), kPromise, file, p,
             header_head(cell, request, "#include <stdint.h>\n", backward != nullptr)) +
         print_call_structs(structs) +
         fmt::format(
             "/* How many devices there are. Where it is 0, reason, which may be null, says why: there is no driver, "
             "or it\n"
             " * does not start; else reason is null. */\n"
             "int {0}_supported(const char** reason);\n\n"
             "/* The kernels in the primary context of one device, which is that of the CUDA runtime and of PyTorch. "
             "Memory\n"
             " * of the caller: {0}_module_bytes says how much, too. */\n"
             "typedef struct {{\n  uint64_t words[{1}];\n}} {0}_module;\n"
             "int64_t {0}_module_bytes(void);\n"
             "/* device: its number, from 0 on. The context stays as long as the module; no other call of this file "
             "waits. */\n"
             "int {0}_load({0}_module* m, int device);\n"
             "void {0}_unload({0}_module* m);\n\n",
             p, 3 + kernel_names(cell, backward).size()) +
         comment_on_calls(p) +
         "/* On any thread, in the module's context; stream: a CUstream or cudaStream_t of it.\n" +
         print_checked_functions(
             structs,
             {{p + "_workspace", call + "int64_t* bytes", "m, lengths, arrays, bytes"},
              {p + "_forward", call + "void* stream,\n    void* workspace, int64_t workspace_bytes, int32_t* status",
               "m, lengths, arrays, stream, workspace, workspace_bytes, status"}}) +
         fmt::format(
             "/* What a result means; what this was compiled from. */\n"
             "const char* {0}_message(int result);\n"
             "const char* {0}_about(void);\n\n"
             "{1}"
             "#ifdef __cplusplus\n}}\n#endif\n#endif\n",
             p, backward ? declared_backward(*backward, request, true) : std::string());
}

namespace {

std::vector<int> room_numbers(const AotCell& cell) {
  const CallRoom r = call_room(cell.table());
  return {r.symbols,   r.inputs, r.states, r.outs,  r.stages, r.sums,          r.part,
          r.addresses, r.before, r.once,   r.views, r.starts, r.argument_words};
}

}  // namespace

LibraryParts library_parts(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                           const AotBackward* backward) {
  LibraryParts parts;
  FieldWords words(cell.layout());
  parts.prefix = request.prefix;
  parts.about = origin.about;
  parts.tables = print_aot_tables(cell, request.prefix);
  parts.kernels = kernel_names(cell, backward);
  parts.missing = std::move(words.missing);
  parts.foreign = std::move(words.foreign);
  parts.unaligned = std::move(words.unaligned);
  parts.room = room_numbers(cell);
  parts.layout = layout_number(structs_of(cell, request));
  if (!backward) return parts;
  FieldWords of_backward(backward->layout());
  LibraryParts::Backward& b = parts.backward.emplace();
  parts.tables += print_backward_tables(*backward, request);
  b.missing = std::move(of_backward.missing);
  b.foreign = std::move(of_backward.foreign);
  b.unaligned = std::move(of_backward.unaligned);
  b.room = room_numbers(backward->adjoint());
  b.layout = layout_number(backward_structs(*backward, request));
  return parts;
}

}  // namespace cellc
