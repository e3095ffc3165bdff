// Which view is shown: #/ all runs, #/run/ID/TAB, #/compare/ID,ID, #/plan.

function viewOf(place, here) {
  const [kind, what, tab] = place.split("/");
  if (kind === "run" && what) return runView(here, [what], TABS[tab] ? tab : "curves");
  if (kind === "compare" && what) return runView(here, what.split(",").slice(0, 8), "curves");
  if (kind === "plan") return planView(here);
  return listView(here);
}

function showPlace() {
  const place = location.hash.replace(/^#\/?/, ""), page = document.getElementById("page"), isSameRun = view && view.run && view.run === place.split("/")[1];
  if (view) view.end();
  view = new View();
  view.run = place.split("/")[0] === "run" ? place.split("/")[1] : null;
  leaveChat(view.run);
  const known = isSameRun ? runs : [];
  takeRuns(known);
  page.replaceChildren(...viewOf(place, view).flat(Infinity).filter(Boolean));
  if (known.length) view.show();
  const current = place.startsWith("plan") ? "#/plan" : "#/";
  for (const link of document.querySelectorAll("#top a")) link.href.endsWith(current) ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  if (!isSameRun) scrollTo(0, 0);
}

document.getElementById("top").append(el("b", null, "trainer"), el("a", {href: "#/"}, "Runs"), el("a", {href: "#/plan"}, "Memory plan"));
document.getElementById("skip").addEventListener("click", event => {
  event.preventDefault();
  document.getElementById("page").focus();
});
addEventListener("hashchange", showPlace);
showPlace();
