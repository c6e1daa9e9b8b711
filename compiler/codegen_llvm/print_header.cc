#include "compiler/codegen_llvm/print_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/graph/history_length.h"
#include "kernels-templates/abi/call_results.h"

namespace cellc {
namespace {

class HeaderPrinter {
 public:
  explicit HeaderPrinter(const CallStructs& of)
      : cell_(of.cell), options_(of), p_(of.prefix), lengths_(of.forward.empty() ? of.prefix : of.forward) {}

  std::string structs() const { return lengths() + arrays(); }

  std::string arrays_alone() const { return arrays(); }

  std::vector<ArrayFacts> facts() const {
    std::vector<ArrayFacts> all;
    for (const CallField& f : options_.layout.fields)
      all.push_back({f.member, type_of(f), shape_of(f), f.is_rows(), f.is_written(), f.required()});
    return all;
  }

  /// In the struct of lengths, in its order: those of axes first.
  std::vector<std::string> length_names() const {
    std::vector<std::string> others{"sequences", "steps", "offsets", "device_offsets", "reverse", "keep"}, names;
    if (!options_.on_device) others = {"sequences", "steps", "offsets", "reverse"};
    const auto is_used = [](const std::vector<std::string>& by, const std::string& name) {
      return std::find(by.begin(), by.end(), name) != by.end();
    };
    for (const AxisId a : options_.layout.lengths) {
      std::string name = c_name(cell_.graph.axis(a).name);
      while (is_used(others, name) || is_used(names, name)) name += "_";
      names.push_back(name);
    }
    names.insert(names.end(), others.begin(), others.end());
    return names;
  }

  /// What stands behind the forward call's functions.
  std::string print_backward() const { return arrays() + functions(); }

  /// `supported`: the function that says whether calls can run.
  std::string print(const std::string& origin, const std::string& supported, const std::string& backward) {
    std::string text = "/* " + origin;
    text += fmt::format(
        " *\n"
        " * Sequences are run step by step, so every written step is that of the step code itself: a status "
        "of 0\n"
        " * says that a sequence is done. Calls keep nothing between them and allocate nothing; several "
        "threads may\n"
        " * call at once, each with a workspace of its own. Nothing is written unless a call gives 0. */\n"
        "#ifndef {0}\n#define {0}\n\n#include <stdint.h>\n\n{1}"
        "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
        include_guard(options_), print_result_names());
    text += lengths() + arrays() + functions() + supported;
    return text + "#ifdef __cplusplus\n}\n#endif\n#endif\n" + backward;
  }

 private:
  std::vector<std::string> shape_of(const CallField& field) const {
    std::vector<std::string> parts;
    if (field.traits().layout != FieldLayout::Once) parts.emplace_back("sequences");
    if (field.is_rows()) parts.emplace_back("steps");
    if (field.is_history()) parts.push_back(history_length(cell_, cell_.symbols[static_cast<std::size_t>(field.id)]));
    for (const int a : field.axes) parts.push_back(axis_text(cell_.header[static_cast<std::size_t>(a)]));
    return parts;
  }
  std::string shape_text(const CallField& field) const { return fmt::format("[{}]", fmt::join(shape_of(field), ", ")); }

  std::string axis_text(AxisId axis) const {
    const Axis& header = cell_.graph.axis(axis);
    return header.fixed ? fmt::format("{}={}", header.name, *header.fixed) : header.name;
  }

  std::string type_of(const CallField& field) const {
    const bool f64 = options_.storage == Storage::F64;
    if (field.is_storage() && (options_.storage == Storage::F16 || options_.storage == Storage::BF16))
      return "uint16_t";
    return f64 ? "double" : "float";
  }

  std::string lengths() const {
    std::string text = "typedef struct {\n";
    const auto line = [&](const std::string& member, const std::string& comment) {
      text += fmt::format("  {:<26} /* {} */\n", member + ";", comment);
    };
    const std::vector<std::string> names = length_names();
    for (std::size_t i = 0; i < options_.layout.lengths.size(); ++i)
      line("int64_t " + names[i], fmt::format("length of axis {}", cell_.graph.axis(options_.layout.lengths[i]).name));
    line("int64_t sequences", "0 or more");
    line("int64_t steps",
         options_.steps ? fmt::format("{}", *options_.steps) : "of each sequence; not read with offsets");
    line("const int64_t* offsets",
         options_.steps ? "null" : "null, or [sequences + 1]: rows of packed sequences, from 0 on");
    if (options_.on_device)
      line("const int64_t* device_offsets", options_.steps ? "null" : "with offsets, the same numbers on the device");
    line("int64_t reverse", "not 0: from the last step to the first");
    if (options_.on_device)
      line("int64_t keep", "not 0: the workspace is as the last call left it, one of the same lengths");
    return text + fmt::format("}} {}_lengths;\n\n", lengths_);
  }

  bool is_backward() const { return !options_.forward.empty(); }

  std::string arrays() const {
    std::string text =
        std::string(options_.on_device ? "/* All arrays lie on the device.\n *\n * Rows: the address,"
                                       : "/* Rows: the address,") +
        " and the strides from sequence to sequence and from step to step in entries; 0 "
        "stands for\n"
        " * rows one after another. The other arrays have no gaps. What may be null has a default, or is not "
        "wanted.\n"
        " * What is written overlaps nothing, but a final may be the memory of its start. */\n"
        "typedef struct {\n";
    if (is_backward())
      text = fmt::format(
          "/* {1}Gradients of a scalar by what a call of {0}_forward read, from its derivatives by what that call "
          "wrote,\n"
          " * called cotangents here. To be kept from there: everything that it read, with lengths as they were, and "
          "all\n"
          " * states that it wrote. Everything that has a default is given: a value computed elsewhere is to be\n"
          " * differentiated there. Gradients of params are sums over all sequences and steps. Strides as there. */\n"
          "typedef struct {{\n",
          options_.forward, options_.on_device ? "All arrays lie on the device.\n *\n * " : "");
    const bool narrow = options_.storage == Storage::F16 || options_.storage == Storage::BF16;
    for (const CallField& f : options_.layout.fields) {
      std::string comment = shape_text(f);
      if (narrow && f.is_storage()) comment += options_.storage == Storage::F16 ? ", IEEE half" : ", bfloat16";
      if (!f.required())
        comment += f.is_written()                   ? ", may be null"
                   : !is_backward()                 ? ", null: default"
                   : f.absent == FieldAbsent::Start ? ", null: the start, which then has its gradient too"
                                                    : ", null: zeros";
      if (f.is_history() && !f.is_written()) comment += "; the newest step first";
      const std::string member = fmt::format("{}{}* {};", f.is_written() ? "" : "const ", type_of(f), f.member);
      text += fmt::format("  {:<26} /* {}{} */\n", member, f.is_written() ? "written " : "", comment);
      if (f.is_rows()) text += fmt::format("  int64_t {0}_strides[2];\n", f.member);
    }
    return text + fmt::format("}} {}_arrays;\n\n", p_);
  }

  std::string functions() const {
    const std::string run = is_backward() ? p_ : p_ + "_forward";
    return (is_backward() ? "/* workspace and backward, as forward is called; no array is kept between the two.\n"
                          : std::string()) +
           forward_words() +
           print_checked_functions(
               options_, {{p_ + "_workspace", fmt::format("const {}_lengths* lengths, int64_t* bytes", lengths_),
                           "lengths, bytes"},
                          {run,
                           fmt::format("const {}_lengths* lengths, const {}_arrays* arrays, void* workspace,\n"
                                       "    int64_t workspace_bytes, int32_t* status",
                                       lengths_, p_),
                           "lengths, arrays, workspace, workspace_bytes, status"}}) +
           fmt::format(
               "/* What a result means; what this was compiled from. */\n"
               "const char* {0}_message(int result);\n"
               "const char* {0}_about(void);\n\n",
               p_);
  }

  std::string forward_words() const {
    return is_backward()
               ? ""
               : "/* workspace: its size for calls with these lengths. The result is 0 or says what is wrong.\n"
                 " * forward: with a workspace of that size, anywhere. status: null, or [sequences], written 0 "
                 "for each that is\n"
                 " * done.\n";
  }

  const CellGraph& cell_;
  const CallStructs& options_;
  const std::string &p_, &lengths_;
};

}  // namespace

std::string print_call_structs(const CallStructs& of) { return HeaderPrinter(of).structs(); }
std::string print_backward_arrays(const CallStructs& of) { return HeaderPrinter(of).arrays_alone(); }
std::vector<ArrayFacts> array_facts(const CallStructs& of) { return HeaderPrinter(of).facts(); }
std::vector<std::string> length_members(const CallStructs& of) { return HeaderPrinter(of).length_names(); }

namespace {

// FNV-1a: it tells builds apart that nobody made to look alike.
std::uint64_t number_of(std::string_view text) {
  std::uint64_t number = 0xcbf29ce484222325u;
  for (const char c : text) number = (number ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return number;
}

}  // namespace

std::string text_number(std::string_view text) { return fmt::format("{:016x}", number_of(text)); }

std::int64_t layout_number(const CallStructs& of) {
  CallStructs nameless = of;
  nameless.prefix.clear();
  if (!nameless.forward.empty()) nameless.forward = "_";
  // Below 2^63, so that it is written as it is in C and in LLVM.
  return static_cast<std::int64_t>(number_of(print_call_structs(nameless)) >> 1);
}

std::string include_guard(const CallStructs& of) {
  return fmt::format("CELLC_CELL_{}_{}_H", of.prefix, text_number(print_call_structs(of)));
}

std::string print_behind_header(const CallStructs& backward, const std::string& declarations) {
  return fmt::format(
      "\n#ifndef {0}\n#define {0}\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{1}"
      "#ifdef __cplusplus\n}}\n#endif\n#endif\n",
      include_guard(backward), declarations);
}

std::vector<std::pair<std::string, int>> result_numbers() {
  return {
#define CELLC_PAIR(NAME, words) {#NAME, NAME},
      CELLC_RESULTS(CELLC_PAIR)
#undef CELLC_PAIR
#define CELLC_PAIR(NAME, first, words) {#NAME, NAME},
          CELLC_NUMBERED_RESULTS(CELLC_PAIR)
#undef CELLC_PAIR
  };
}

std::string print_result_names() {
  std::string text = "/* What calls give: 0, or one of these; the function for messages has words for all. */\n";
  const auto line = [&](const char* name, int number, const std::string& comment) {
    const std::string said = comment.empty() ? "" : " /* and " + comment + " */";
    text += fmt::format("#define {} {}{}\n", name, number, said);
  };
#define CELLC_PRINT(NAME, words) line(#NAME, NAME, "");
  CELLC_RESULTS(CELLC_PRINT)
#undef CELLC_PRINT
#define CELLC_PRINT(NAME, first, words) line(#NAME, NAME, words);
  CELLC_NUMBERED_RESULTS(CELLC_PRINT)
#undef CELLC_PRINT
  return text + "\n";
}

std::string print_checked_functions(const CallStructs& of, const std::vector<CallFunction>& functions) {
  std::string text;
  for (const CallFunction& f : functions)
    text += fmt::format(
        "int {0}_as(int64_t layout, {1});\n"
        "static inline int {0}({1}) {{\n"
        "  return {0}_as(INT64_C({3:#x}), {2});\n}}\n\n",
        f.name, f.arguments, f.passed, layout_number(of));
  return " * The number is that of the structs above: to another the code answers CELLC_OTHER_LAYOUT. */\n" + text;
}

std::string print_header(const DriverModule& module, const DriverOptions& options, const std::string& origin,
                         const DriverModule* backward) {
  const CallStructs of{module.cell, module.layout, options.storage, options.steps, options.prefix, false};
  std::string more;
  if (backward) {
    const CallStructs structs{
        backward->cell, backward->layout, options.storage, options.steps, options.prefix + "_backward",
        false,          options.prefix};
    more = print_behind_header(structs, HeaderPrinter(structs).print_backward());
  }
  const std::string names = fmt::format("{}", fmt::join(options.processors, ", "));
  const std::string supported =
      (options.processors.size() > 1
           ? fmt::format("/* The number, from 1, of the processor whose code calls run on this machine, of {}: the\n"
                         " * last that it can stand in for. 0: there is none, and calls give CELLC_NO_PROCESSOR. */\n",
                         names)
           : fmt::format("/* Not 0 where this machine can run code for {}. Calls do not ask. */\n", names)) +
      fmt::format("int {}_supported(void);\n\n", options.prefix);
  return HeaderPrinter(of).print(origin, supported, more);
}

std::string structure_summary(const CellGraph& cell, const Structure& structure) {
  std::string text;
  for (const Stage& stage : structure.stages) {
    std::string states;
    for (const int u : stage.states) {
      const Symbol& s = cell.symbols[cell.updates[u].symbol];
      if (s.lag_of < 0) states += (states.empty() ? "" : ", ") + s.name;
    }
    // A state that only an out reads back in time: its copies are a stage of their own.
    if (states.empty()) {
      const Symbol& copy = cell.symbols[cell.updates[stage.states.front()].symbol];
      states = fmt::format("lag({}, {})", cell.symbols[copy.lag_of].name, copy.lag);
    }
    text += fmt::format("{}{{{}}} {}", text.empty() ? "" : "; ", states, to_string(stage.kind));
  }
  return text.empty() ? "no states" : text;
}

}  // namespace cellc
