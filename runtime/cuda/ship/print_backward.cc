#include "runtime/cuda/ship/print_backward.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/cuda/ship/print_aot_tables.h"
#include "runtime/data/storage_of.h"

namespace cellc {
namespace {

std::string item(int n) { return std::to_string(n); }
std::string item(cellc_dims d) { return fmt::format("{{{}, {}}}", d.first, d.count); }
std::string item(const cellc_field& f) { return fmt::format("{{{}, {}, {}, {}}}", f.kind, f.id, f.word, f.required); }
std::string item(const cellc_adjoint_input& i) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}", i.field, i.word, i.back, i.along, i.is_state,
                     i.start, i.history, i.is_factor, i.stored, item(i.axes));
}
std::string item(const cellc_adjoint_out& o) {
  return fmt::format("{{{}, {}, {}, {}}}", o.field, o.word, o.is_factor, item(o.axes));
}
std::string item(const cellc_later_rows& l) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}}}", l.out, l.field, l.history, l.back, l.along, item(l.axes));
}
std::string item(const cellc_past_state& p) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, {}}}", p.is_line, p.lag, p.cotangent, p.start, p.history,
                     p.value, p.start_word, p.end_word, item(p.axes));
}
std::string item(const cellc_adjoint_array& a) { return fmt::format("{{{}, {}}}", a.field, a.word); }
std::string item(const cellc_zero_gradient& z) {
  return fmt::format("{{{}, {}, {}}}", z.field, z.by_sum, item(z.axes));
}
std::string item(const cellc_factor& f) { return fmt::format("{{{}, {}}}", f.is_out, f.number); }
std::string item(const cellc_step_sum& s) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}}}", s.field, item(s.left), item(s.right), item(s.loops),
                     item(s.of_gradient), item(s.of_left), item(s.of_right));
}

/// The room of a call, and the call on it; `p`: the prefix of the adjoint.
std::string room_of_call(const AotBackward& backward, const std::string& p) {
  const cellc_backward& t = backward.table();
  return fmt::format(
      "  {0}_room room;\n"
      "  cellc_work work = {0}_work(&room);\n"
      "  uint64_t words[{1}], inputs[{2}], outs[{3}], past[{4}];\n"
      "  cellc_backward_call call;\n"
      "  int refused;\n",
      p, t.words, t.input_count + 1, t.out_count + 1, t.past_count + 1);
}
std::string filled_call(const std::string& p) {
  return fmt::format(
      "  if (refused) return refused;\n"
      "  memset(&call, 0, sizeof call);\n"
      "  call.of = &{0}_tables, call.device = &device, call.work = &work;\n"
      "  call.words = words, call.inputs = inputs, call.outs = outs, call.past = past;\n",
      p);
}

const char* const kComment =
    "/* workspace and backward: as workspace and forward are called; `keep` is not looked at, and nothing is kept. "
    "*/\n";

}  // namespace

CallStructs backward_structs(const AotBackward& backward, const ShipRequest& forward) {
  return {backward.whole(), backward.layout(),         storage_of(forward.dtype),
          forward.steps,    backward.request().prefix, true,
          forward.prefix};
}

std::string print_backward_tables(const AotBackward& backward, const ShipRequest& forward) {
  const std::string& p = backward.request().prefix;
  std::string text = print_aot_tables(backward.adjoint(), p);
  const auto list = [&](const char* type, const char* name, const auto& rows) -> std::string {
    if (rows.empty()) return "0";
    std::string body;
    for (const auto& row : rows) body += fmt::format("  {},\n", item(row));
    body.erase(body.size() - 2, 1);
    text += fmt::format("static const {} {}_call_{}[] = {{\n{}}};\n", type, p, name, body);
    return fmt::format("{}_call_{}", p, name);
  };
  const std::string fields = list("cellc_field", "fields", backward.fields), axes = list("int", "axes", backward.axes);
  const std::string inputs = list("cellc_adjoint_input", "inputs", backward.inputs),
                    outs = list("cellc_adjoint_out", "outs", backward.outs);
  const std::string later = list("cellc_later_rows", "later", backward.later),
                    past = list("cellc_past_state", "past", backward.past);
  const std::string arrays = list("cellc_adjoint_array", "arrays", backward.arrays),
                    zeros = list("cellc_zero_gradient", "zeros", backward.zeros);
  const std::string sums = list("cellc_step_sum", "sums", backward.sums);
  const cellc_backward& t = backward.table();
  const cellc_gradient_kernels& k = t.kernels;
  return text +
         fmt::format(
             "static const cellc_backward {0}_tables = {{\n"
             "  &{1}_cell, &{0}_cell, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10},\n"
             "  {11},\n  {{{12}}}}};\n\n",
             p, forward.prefix, fields, axes, inputs, outs, later, past, arrays, zeros, sums,
             fmt::join({t.field_count, t.input_count, t.out_count, t.later_count, t.past_count, t.array_count,
                        t.zero_count, t.sum_count, t.words},
                       ", "),
             fmt::join({k.earlier, k.tables, k.columns, k.products, k.finish, k.later_rows, k.later_history, k.past},
                       ", "));
}

std::string module_backward(const AotBackward& backward, const ShipRequest& forward, std::size_t first_kernel,
                            const std::string& about) {
  const std::string& p = backward.request().prefix;
  const auto body = [&](const char* stream, const std::string& call) {
    return fmt::format(
        "  cellc_driver driver;\n"
        "  cellc_device device;\n"
        "{0}"
        "  if (!m || !m->module) return CELLC_NOT_LOADED;\n"
        "  refused = cellc_driver_open(&{1}_cell, m->kernels + {2}, m->context, {3}, &driver, &device);\n"
        "{4}"
        "  return {5};\n",
        room_of_call(backward, p), p, first_kernel, stream, filled_call(p), call);
  };
  return kComment +
         fmt::format(
             "static inline int {0}_workspace(const {1}_module* m, const {1}_lengths* lengths, const {0}_arrays* "
             "arrays, "
             "int64_t* bytes) {{\n{2}}}\n\n"
             "static inline int {0}(const {1}_module* m, const {1}_lengths* lengths, const {0}_arrays* arrays, "
             "CUstream "
             "stream,\n    CUdeviceptr workspace, int64_t workspace_bytes, CUdeviceptr status) {{\n{3}}}\n\n"
             "static inline const char* {0}_message(int result) {{ return {0}_words(result); }}\n"
             "static inline const char* {0}_about(void) {{ return \"{4}\"; }}\n\n",
             p, forward.prefix, body("0", "cellc_count_backward(&call, lengths, arrays, bytes)"),
             body("stream",
                  "cellc_run_backward(&call, lengths, arrays, (uint64_t)workspace, workspace_bytes, (uint64_t)status)"),
             about);
}

std::string source_backward(const AotBackward& backward, const ShipRequest& forward, const std::string& about) {
  const std::string& p = backward.request().prefix;
  const auto body = [&](const char* stream, const std::string& call) {
    return fmt::format(
        "  cellc_cuda cuda;\n"
        "  cellc_device device;\n"
        "{0}"
        "  refused = cellc_cuda_open(&{1}_cell, {1}_kernels, {2}, &cuda, &device);\n"
        "{3}"
        "  return {4};\n",
        room_of_call(backward, p), p, stream, filled_call(p), call);
  };
  return fmt::format(
      "extern \"C\" int {0}_workspace(const {1}_lengths* lengths, const {0}_arrays* arrays, int64_t* bytes) "
      "{{\n{2}}}\n\n"
      "extern \"C\" int {0}(const {1}_lengths* lengths, const {0}_arrays* arrays, void* stream, void* workspace,\n"
      "    int64_t workspace_bytes, int32_t* status) {{\n{3}}}\n\n"
      "extern \"C\" int {0}_workspace_as(int64_t layout, const {1}_lengths* lengths, const {0}_arrays* arrays, "
      "int64_t* bytes) {{\n"
      "  return layout == INT64_C({5:#x}) ? {0}_workspace(lengths, arrays, bytes) : CELLC_OTHER_LAYOUT;\n}}\n\n"
      "extern \"C\" int {0}_as(int64_t layout, const {1}_lengths* lengths, const {0}_arrays* arrays, void* stream,\n"
      "    void* workspace, int64_t workspace_bytes, int32_t* status) {{\n"
      "  if (layout != INT64_C({5:#x})) return CELLC_OTHER_LAYOUT;\n"
      "  return {0}(lengths, arrays, stream, workspace, workspace_bytes, status);\n}}\n\n"
      "extern \"C\" const char* {0}_message(int result) {{ return {0}_words(result); }}\n"
      "extern \"C\" const char* {0}_about(void) {{ return \"{4}\"; }}\n",
      p, forward.prefix, body("nullptr", "cellc_count_backward(&call, lengths, arrays, bytes)"),
      body("stream",
           "cellc_run_backward(&call, lengths, arrays, reinterpret_cast<uint64_t>(workspace), workspace_bytes,\n"
           "                            reinterpret_cast<uint64_t>(status))"),
      about, layout_number(backward_structs(backward, forward)));
}

std::string declared_backward(const AotBackward& backward, const ShipRequest& forward, bool module) {
  const std::string& p = backward.request().prefix;
  const std::string first = module ? fmt::format("const {}_module* m, ", forward.prefix) : "",
                    passed = module ? "m, " : "";
  const CallStructs structs = backward_structs(backward, forward);
  return print_backward_arrays(structs) +
         "/* workspace and backward: as workspace and forward are called; `keep` is not looked at, and nothing is "
         "kept.\n" +
         print_checked_functions(
             structs,
             {{p + "_workspace",
               first +
                   fmt::format("const {}_lengths* lengths, const {}_arrays* arrays, int64_t* bytes", forward.prefix, p),
               passed + "lengths, arrays, bytes"},
              {p,
               first + fmt::format(
                           "const {}_lengths* lengths, const {}_arrays* arrays,\n    void* stream, void* workspace, "
                           "int64_t workspace_bytes, int32_t* status",
                           forward.prefix, p),
               passed + "lengths, arrays, stream, workspace, workspace_bytes, status"}}) +
         fmt::format("const char* {0}_message(int result);\nconst char* {0}_about(void);\n\n", p);
}

}  // namespace cellc
