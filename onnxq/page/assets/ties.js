view("ties", "Ties", () => M.groups.length, (box, wanted) => {
  add(box, el("p", {}, "Tensors that share one scale: a member whose range is a few steps loses its values."));
  const groups = M.groups.map((group) => ({group, lost: lostMembers(group).length})).sort((a, b) => b.lost - a.lost).map((one) => one.group);
  const first = wanted ? groups.filter((group) => group.leader.name === wanted) : [];
  grow(box, [...first, ...groups.filter((group) => !first.includes(group))], (group) => {
    const lost = new Set(lostMembers(group)), join = joinOf(group);
    return [el("h3", {class: "name"}, tensorLink(group.leader)), el("p", {}, lost.size ? light("look") : null, " step " + (group.leader.q.step ? sig(group.leader.q.step) : "–") + ", " + count(group.members.length) + " tensors", join ? [", joined by ", nodeLink(join)] : null), tieChart(group, lost)];
  });
});

function tieChart(group, lost) {
  const shownMembers = group.members.slice(0, 24), ranges = shownMembers.map(rangeOf), q = group.leader.q;
  const ends = ranges.filter(Boolean).flat().concat(q.low === null ? [] : [num(q.low), num(q.high)]);
  if (!ends.length) return el("ul", {}, shownMembers.map((member) => el("li", {}, tensorLink(member))));
  return plot({height: 26 + 20 * shownMembers.length, label: "Ranges of " + shownMembers.map((member, i) => member.name + (ranges[i] ? " " + sig(ranges[i][0]) + " to " + sig(ranges[i][1]) : "")).join("; "),
    draw(ctx, w, h) {
      const axis = new Axis(Math.min(...ends), Math.max(...ends), 8, w - 8);
      gridX(ctx, axis, h - 20, undefined, 2);
      shownMembers.forEach((member, i) => {
        const y = 2 + 20 * i;
        if (ranges[i]) { const x = axis.at(ranges[i][0]); ctx.fillStyle = lost.has(member) ? color("bad") : color("bar"); ctx.fillRect(x, y + 13, Math.max(2, axis.at(ranges[i][1]) - x), 5); }
        ctx.textBaseline = "top"; ctx.textAlign = "right"; ctx.fillStyle = color("muted");
        const said = ranges[i] ? sig(ranges[i][0], 3) + " .. " + sig(ranges[i][1], 3) : "", wide = ctx.measureText(said).width;
        ctx.clearRect(0, y - 1, w, 13); ctx.fillText(said, w - 8, y);
        ctx.fillStyle = color("fg"); ctx.textAlign = "left"; ctx.fillText(cut(ctx, member.name, w - 28 - wide), 8, y);
      });
    },
    at(x, y) { const member = shownMembers[Math.floor((y - 2) / 20)], i = shownMembers.indexOf(member); return member ? {text: member.name + (ranges[i] ? "\n" + sig(ranges[i][0]) + " .. " + sig(ranges[i][1]) + (q.step ? ", " + sig((ranges[i][1] - ranges[i][0]) / q.step, 3) + " steps" : "") : "\nnot observed") + (lost.has(member) ? "\nhardly any steps are left" : ""), open: () => showTensor(member)} : null; }});
}
